package ai.plait;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** wrong_arguments.txt in Java: an exception each, and the process lives on. */
class WrongArgumentsTest {
  private final Model model = Model.open(Lists.model());
  private final Generator generator = model.generator(Lists.small());
  private final Session session = model.session(new Options().threads(1));
  private final Map<String, Runnable> cases = new LinkedHashMap<>();

  private static void load(Trainer made) {
    try (Trainer trainer = made) {
      trainer.await(null);
    }
  }

  private static <T extends AutoCloseable> T closed(T object) {
    try {
      object.close();
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
    return object;
  }

  private void models() {
    cases.put("model.path.missing", () -> Model.open(Paths.get("no such model")));
    cases.put("model.path.null", () -> Model.open((Path) null));
    cases.put("model.path.nul", () -> Native.plait_model_open("a\0b", null));
    cases.put("model.file.damaged", () -> Model.open(Lists.FIXTURES.resolve("manifest.json")));
    cases.put("model.memory.empty", () -> Model.open(Collections.emptyMap(), null));
    cases.put("model.memory.null", () -> Model.open(Collections.singletonMap("model.onnx", null), null));
    cases.put("model.dump.unknown", () -> model.dump("dance"));
    cases.put("model.closed", () -> closed(Model.open(Lists.model())).info());
    cases.put("trainer.pipeline.unknown", () -> load(model.trainer(new Options().set("mesh", "pipeline=2").set("pipeline", "2f2b"))));
    cases.put("trainer.stages.many", () -> load(model.trainer(new Options().set("mesh", "pipeline=64"))));
    cases.put("trainer.stages.without", () -> load(model.trainer(new Options().set("stages", "1,1"))));
    cases.put("options.key.unknown", () -> new Options().set("temprature", "1"));
    cases.put("options.key.null", () -> new Options().set(null, "1"));
    cases.put("options.value.wrong", () -> new Options().set("temperature", "warm"));
    cases.put("options.value.null", () -> new Options().set("seed", (String) null));
    cases.put("options.of.another", () -> generator.submit(new int[] {1}, new Options().threads(1)));
    cases.put("options.closed", () -> generator.submit(new int[] {1}, closed(new Options())));
    cases.put("text.surrogate.half", () -> generator.submit("a\ud800b", null));
  }

  private void requests() {
    int[] fine = {1, 2, 3};
    cases.put("prompt.null", () -> generator.submit((String) null, null));
    cases.put("prompt.ids.null", () -> generator.submit((int[]) null, null));
    cases.put("prompt.ids.empty", () -> generator.submit(new int[0], null));
    cases.put("prompt.ids.negative", () -> generator.submit(new int[] {-1}, null));
    cases.put("prompt.ids.large", () -> generator.submit(new int[] {512}, null));
    cases.put("prompt.long", () -> generator.submit(new int[600], null));
    cases.put("chat.no.json", () -> generator.submitChat("no json", null));
    cases.put("parent.not.kept", () -> generator.submit(fine, null, generator.submit(fine, Lists.greedy(1))));
    cases.put("restore.nonsense", () -> generator.restore("nonsense!".getBytes(java.nio.charset.StandardCharsets.UTF_8)));
    cases.put("restore.empty", () -> generator.restore(new byte[0]));
    cases.put("generator.closed", () -> closed(model.generator(Lists.small())).submit(fine, null));
    cases.put("request.push.unasked", () -> generator.submit(fine, Lists.greedy(1)).push(1));
    cases.put("request.result.of.text", () -> generator.submit(fine, Lists.greedy(1)).result());
    cases.put("request.save.not.kept", () -> generator.submit(fine, Lists.greedy(1)).save());
    cases.put("request.closed", () -> closed(generator.submit(fine, Lists.greedy(1))).next());
  }

  private void tensors() {
    Tensor floats = Tensor.of(new float[6], 2, 3);
    ByteBuffer memory = ByteBuffer.allocateDirect(24);
    cases.put("tensor.bytes.few", () -> Tensor.copyOf(DType.F32, new long[] {2, 4}, memory));
    cases.put("tensor.dims.negative", () -> Tensor.copyOf(DType.F32, new long[] {-1, 3}, memory));
    cases.put("tensor.dims.huge", () -> Tensor.copyOf(DType.F32, new long[] {Long.MAX_VALUE / 2, 16}, memory));
    cases.put("tensor.dims.null", () -> Tensor.copyOf(DType.F32, null, memory));
    cases.put("tensor.rank.nine", () -> Tensor.copyOf(DType.F32, new long[] {1, 1, 1, 1, 1, 1, 1, 2, 3}, memory));
    cases.put("tensor.dtype.none", () -> Tensor.copyOf(DType.NONE, new long[] {6}, memory));
    cases.put("tensor.read.as.another", () -> floats.ints());
    cases.put("tensor.view.outside", () -> floats.buffer(8, 24));
    cases.put("tensor.no.text", () -> floats.text());
    cases.put("tensor.closed", () -> closed(Tensor.of(new float[1], 1)).dims());
  }

  private void sessions() {
    Map<String, Tensor> inputs = new LinkedHashMap<>();
    for (Operand operand : session.inputs()) {
      long[] dims = operand.getDims();
      boolean past = operand.getName().contains("past");
      inputs.put(operand.getName(), past ? Tensor.of(new float[0], 1, dims[1], 0, dims[3]) : Tensor.of(new long[] {1}, 1, 1));
    }
    String first = inputs.keySet().iterator().next();
    cases.put("session.input.unknown", () -> session.run(with(inputs, "no such input", Tensor.of(new long[1], 1)), "logits"));
    cases.put("session.input.missing", () -> session.run(Collections.emptyMap(), "logits"));
    cases.put("session.input.null", () -> session.run(with(inputs, first, null), "logits"));
    cases.put("session.input.dtype", () -> session.run(with(inputs, first, Tensor.of(new float[1], 1, 1)), "logits"));
    cases.put("session.input.closed", () -> session.run(with(inputs, first, closed(Tensor.of(new long[1], 1, 1))), "logits"));
    cases.put("session.output.unknown", () -> session.run(inputs, "no such output"));
    cases.put("session.closed", () -> closed(model.session(null)).inputs());
    cases.put("tokenizer.directory.missing", () -> Tokenizer.open(Paths.get("no such directory"), null));
    cases.put("tokenizer.id.negative", () -> model.tokenizer().piece(-1));
    cases.put("tokenizer.piece.unknown", () -> model.tokenizer().id("no such piece"));
    cases.put("tokenizer.closed", () -> closed(model.tokenizer()).encode("x"));
  }

  private static Map<String, Tensor> with(Map<String, Tensor> inputs, String name, Tensor value) {
    Map<String, Tensor> out = new LinkedHashMap<>(inputs);
    out.put(name, value);
    return out;
  }

  private static String outcome(Runnable call) {
    try {
      call.run();
      return "OK";
    } catch (PlaitException error) {
      assertFalse(error.getMessage().isEmpty());
      return error.status().name();
    } catch (NullPointerException error) {
      return "null";
    }
  }

  @TestFactory
  Iterable<DynamicTest> table() {
    models();
    requests();
    tensors();
    sessions();
    Map<String, String> table = Lists.read("wrong_arguments.txt");
    assertEquals(table.keySet(), cases.keySet(), "the table and its cases");
    java.util.List<DynamicTest> tests = new java.util.ArrayList<>();
    table.forEach((name, expected) -> tests.add(DynamicTest.dynamicTest(name, () -> {
      String got = outcome(cases.get(name));
      if (!expected.equals("null") || !got.equals("INVALID_ARGUMENT")) assertEquals(expected, got);
    })));
    return tests;
  }
}

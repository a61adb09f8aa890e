package ai.plait.djl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ai.djl.Device;
import ai.djl.engine.Engine;
import ai.djl.inference.Predictor;
import ai.djl.inference.streaming.PublisherBytesSupplier;
import ai.djl.modality.Input;
import ai.djl.modality.Output;
import ai.djl.repository.zoo.Criteria;
import ai.djl.repository.zoo.ZooModel;
import ai.plait.Request;
import ai.plait.Token;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The engine as DJL Serving and plain DJL see it, with only ai.djl:api. */
class PlaitEngineTest {
  private static final String PROMPT = "the river and the sea";
  private static final String TEXT = new String(new byte[] {(byte) 0xdb, (byte) 0x98}, StandardCharsets.UTF_8) + " them them them";

  @TempDir
  Path directory;

  /** A model directory of the fixture's files, with the contents of serving.properties. */
  private Path model(String... properties) throws IOException {
    Path source = Paths.get(System.getProperty("plait.fixtures"), "gemma3-standard23");
    Path out = Files.createTempDirectory(directory, "model");
    try (Stream<Path> files = Files.list(source)) {
      for (Path file : (Iterable<Path>) files::iterator) Files.copy(file, out.resolve(file.getFileName()));
    }
    List<String> lines = new ArrayList<>(Arrays.asList(properties));
    lines.add("engine=Plait");
    lines.add("translatorFactory=ai.plait.djl.PlaitTranslatorFactory");
    lines.add("option.plait.threads=1");
    lines.add("option.plait.cache_bytes=8M");
    Files.write(out.resolve("serving.properties"), lines);
    return out;
  }

  private ZooModel<Input, Output> serve(String... properties) throws Exception {
    return Criteria.builder().setTypes(Input.class, Output.class).optModelPath(model(properties)).optEngine("Plait").build().loadModel();
  }

  private static Input input(String json) {
    Input input = new Input();
    input.add("data", json.replace('\'', '"'));
    return input;
  }

  /** All of the body; for one that is pushed until its last piece. */
  private static CompletableFuture<String> body(Output output) {
    if (!(output.getData() instanceof PublisherBytesSupplier)) return CompletableFuture.completedFuture(output.getData().getAsString());
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    return ((PublisherBytesSupplier) output.getData()).subscribe(piece -> {
      if (piece != null) bytes.write(piece, 0, piece.length);
    }).thenApply(end -> new String(bytes.toByteArray(), StandardCharsets.UTF_8));
  }

  private static String ask(ZooModel<Input, Output> model, String json) throws Exception {
    try (Predictor<Input, Output> predictor = model.newPredictor()) {
      return body(predictor.predict(input(json))).get();
    }
  }

  private static JsonObject object(String json) {
    return JsonParser.parseString(json).getAsJsonObject();
  }

  @Test
  void generate() throws Exception {
    try (ZooModel<Input, Output> model = serve("option.tensor_parallel_degree=2", "option.dtype=fp32", "option.rolling_batch=auto",
        "option.max_rolling_batch_size=8")) {
      JsonObject reply = object(ask(model, "{'inputs': '" + PROMPT + "', 'parameters': {'max_new_tokens': 5, 'ignore_eos': true,"
          + " 'details': true}}"));
      assertTrue(reply.get("generated_text").getAsString().startsWith(TEXT), String.valueOf(reply));
      JsonObject details = reply.getAsJsonObject("details");
      assertEquals("length", details.get("finish_reason").getAsString());
      assertEquals(5, details.get("generated_tokens").getAsInt());
      assertEquals(159, details.getAsJsonArray("tokens").get(0).getAsJsonObject().get("id").getAsInt());
      assertFalse(details.has("prefill"));
      JsonArray prompt = object(ask(model, "{'inputs': '" + PROMPT + "', 'parameters': {'max_new_tokens': 1, 'details': true,"
          + " 'decoder_input_details': true, 'repetition_penalty': 1.1, 'min_p': 0.1, 'top_k': -1, 'stop_token_ids': [1, 2]}}"))
          .getAsJsonObject("details").getAsJsonArray("prefill");
      double least = 0;
      for (int i = 0; i < prompt.size(); ++i) least = Math.min(least, prompt.get(i).getAsJsonObject().get("log_prob").getAsDouble());
      assertTrue(prompt.size() > 4 && least < -1 && least > -100, String.valueOf(prompt));
      JsonArray two = JsonParser.parseString(ask(model, "{'inputs': ['" + PROMPT + "', 'sea'], 'parameters': {'max_new_tokens': 3}}"))
          .getAsJsonArray();
      assertEquals(2, two.size());
      String full = object(ask(model, "{'inputs': '" + PROMPT + "', 'parameters': {'return_full_text': true}}")).get("generated_text")
          .getAsString();
      assertTrue(full.startsWith(PROMPT + TEXT), full);
    }
  }

  /** What load_on_devices=gpu0+gpu1 comes to. */
  @Test
  void devices() throws Exception {
    Device two = Device.fromName("gpu0+gpu1", Engine.getEngine("Plait"));
    Criteria.Builder<Input, Output> builder = Criteria.builder().setTypes(Input.class, Output.class).optEngine("Plait").optDevice(two);
    try (ZooModel<Input, Output> model = builder.optModelPath(model("option.tensor_parallel_degree=2")).build().loadModel()) {
      PlaitModel own = (PlaitModel) model.getWrappedModel();
      assertEquals(2, JsonParser.parseString(own.generator().ranks()).getAsJsonArray().size());
    }
    Criteria<Input, Output> four = builder.optModelPath(model("option.tensor_parallel_degree=4")).build();
    assertTrue(assertThrows(Exception.class, four::loadModel).getMessage().contains("load_on_devices"));
  }

  /** What a body leaves out is as in DJL's large-model serving. */
  @Test
  void defaults() throws Exception {
    try (ZooModel<Input, Output> model = serve()) {
      JsonObject reply = object(ask(model, "{'inputs': '" + PROMPT + "', 'parameters': {'details': true, 'ignore_eos': true}}"));
      assertEquals(30, reply.getAsJsonObject("details").get("generated_tokens").getAsInt());
      assertTrue(reply.get("generated_text").getAsString().startsWith(TEXT), "greedy, and without the prompt");
      assertFalse(object(ask(model, "{'inputs': '" + PROMPT + "'}")).has("details"));
      String sampled = "{'inputs': '" + PROMPT + "', 'parameters': {'temperature': 9, 'seed': SEED, 'ignore_eos': true}}";
      String one = ask(model, sampled.replace("SEED", "1"));
      assertNotEquals(one, ask(model, sampled.replace("SEED", "2")), "sampling is asked for by its parameters");
      assertEquals(one, ask(model, sampled.replace("SEED", "1")));
      String forced = sampled.replace("SEED", "1, 'do_sample': false");
      assertTrue(object(ask(model, forced)).get("generated_text").getAsString().startsWith(TEXT), "do_sample decides");
    }
  }

  /** Those in the model's folder "adapters", by their folders' names. */
  @Test
  void adapters() throws Exception {
    Path files = model();
    try (ai.plait.Model base = ai.plait.Model.open(files);
        ai.plait.Trainer trainer = base.trainer(new ai.plait.Options().threads(1).set("lora", 4).set("lr", 0.05));
        ai.plait.Tensor ids = ai.plait.Tensor.of(new int[] {323, 352, 460, 299, 398, 428, 121, 7, 300, 12}, 1, 10)) {
      for (int step = 0; step < 5; ++step) trainer.step(ids, null);
      trainer.saveAdapter(files.resolve("adapters").resolve("taught"));
    }
    try (ZooModel<Input, Output> model = Criteria.builder().setTypes(Input.class, Output.class).optModelPath(files).optEngine("Plait")
             .build().loadModel()) {
      String query = "{'inputs': ['" + PROMPT + "', '" + PROMPT + "'], 'adapters': ['', 'taught'], 'parameters': {'max_new_tokens': 5,"
          + " 'ignore_eos': true}}";
      JsonArray two = JsonParser.parseString(ask(model, query)).getAsJsonArray();
      assertTrue(two.get(0).getAsJsonObject().get("generated_text").getAsString().startsWith(TEXT), String.valueOf(two));
      assertFalse(two.get(1).getAsJsonObject().get("generated_text").getAsString().startsWith(TEXT), String.valueOf(two));
      try (Predictor<Input, Output> worker = model.newPredictor()) {
        for (String names : new String[] {"'unknown'", "['taught']"}) {
          Output output = worker.predict(input("{'inputs': ['a', 'b'], 'adapters': " + names + "}"));
          assertEquals(400, output.getCode(), names);
        }
      }
    }
  }

  @Test
  void streams() throws Exception {
    String query = "{'inputs': '" + PROMPT + "', 'parameters': {'max_new_tokens': 5, 'ignore_eos': true}, 'stream': true}";
    try (ZooModel<Input, Output> model = serve()) {
      String[] lines = ask(model, query).split("\n");
      assertEquals(5, lines.length);
      StringBuilder text = new StringBuilder();
      for (String line : lines) text.append(object(line).getAsJsonObject("token").get("text").getAsString());
      assertEquals(text.toString(), object(lines[4]).get("generated_text").getAsString());
      assertEquals("length", object(lines[4]).getAsJsonObject("details").get("finish_reason").getAsString());
      assertTrue(object(lines[0]).getAsJsonObject("token").has("log_prob"));
    }
    try (ZooModel<Input, Output> model = serve("option.output_formatter=sse", "option.tgi_compat=true")) {
      for (String line : ask(model, query).split("\n\n")) {
        assertTrue(object(line.substring("data: ".length())).getAsJsonObject("token").has("logprob"));
      }
      String chat = ask(model, "{'messages': [{'role': 'user', 'content': 'hello'}], 'stream': true, 'max_tokens': 4}");
      assertTrue(chat.startsWith("data: {") && chat.endsWith("data: [DONE]\n\n"), chat);
    }
  }

  @Test
  void chat() throws Exception {
    try (ZooModel<Input, Output> model = serve()) {
      JsonObject reply = object(ask(model, "{'messages': [{'role': 'user', 'content': 'hello'}], 'max_tokens': 4, 'temperature': 0,"
          + " 'ignore_eos': true, 'n': 2, 'logprobs': true, 'stop': ['zzzz'], 'logit_bias': {'5': -1}}"));
      assertEquals("chat.completion", reply.get("object").getAsString());
      assertEquals(2, reply.getAsJsonArray("choices").size());
      assertEquals("length", reply.getAsJsonArray("choices").get(0).getAsJsonObject().get("finish_reason").getAsString());
      assertEquals(8, reply.getAsJsonObject("usage").get("completion_tokens").getAsInt());
    }
  }

  /** One worker, 64 clients that stream at once. */
  @Test
  void manyClients() throws Exception {
    try (ZooModel<Input, Output> model = serve("option.max_rolling_batch_size=64"); Predictor<Input, Output> worker = model.newPredictor()) {
      List<CompletableFuture<String>> bodies = new ArrayList<>();
      for (int i = 0; i < 64; ++i) {
        bodies.add(body(worker.predict(input("{'inputs': '" + PROMPT + "', 'stream': true, 'parameters': {'max_new_tokens': 5}}"))));
      }
      String first = bodies.get(0).get();
      for (CompletableFuture<String> one : bodies) assertEquals(first, one.get());
    }
  }

  /** Requests of this never end by themselves: they wait for a host that samples. */
  private ZooModel<Input, Output> serveForEver() throws Exception {
    return serve("option.plait.host_sampling=true", "option.max_rolling_batch_size=1", "option.predict_timeout=1000");
  }

  /** A slot comes back in any case. */
  @Test
  void repliesThatSayNothing() throws Exception {
    try (ZooModel<Input, Output> model = serve("option.plait.host_sampling=true", "option.predict_timeout=1");
        Predictor<Input, Output> worker = model.newPredictor()) {
      for (String stream : new String[] {"true", "false"}) {
        String said = body(worker.predict(input("{'inputs': '" + PROMPT + "', 'stream': " + stream + "}"))).get();
        assertTrue(said.contains("predict_timeout") && said.contains("424"), said);
      }
      PlaitModel own = (PlaitModel) model.getWrappedModel();
      for (int i = 0; i < 500 && own.generator().statistics().getRunning() > 0; ++i) Thread.sleep(10);
      assertEquals(0, own.generator().statistics().getRunning());
    }
  }

  @Test
  void clientsThatLeave() throws Exception {
    try (ZooModel<Input, Output> model = serveForEver(); Predictor<Input, Output> worker = model.newPredictor()) {
      Input input = input("{'inputs': '" + PROMPT + "'}");
      worker.predict(input);
      PlaitModel own = (PlaitModel) model.getWrappedModel();
      for (int i = 0; i < 500 && own.generator().statistics().getRunning() == 0; ++i) Thread.sleep(10);
      assertEquals(1, own.generator().statistics().getRunning());
      input.setCancelled(true);
      for (int i = 0; i < 500 && own.generator().statistics().getRunning() > 0; ++i) Thread.sleep(10);
      assertEquals(0, own.generator().statistics().getRunning());
    }
  }

  /** As in DJL Serving, whose subscriber holds the context of the client's connection, and which reports nothing after its headers. */
  @Test
  void clientsThatLeaveLater() throws Exception {
    try (ZooModel<Input, Output> model = serveForEver(); Predictor<Input, Output> worker = model.newPredictor()) {
      EmbeddedChannel connection = new EmbeddedChannel(new ChannelInboundHandlerAdapter());
      ChannelHandlerContext context = connection.pipeline().firstContext();
      Output output = worker.predict(input("{'inputs': '" + PROMPT + "', 'stream': true}"));
      ((PublisherBytesSupplier) output.getData()).subscribe(piece -> context.writeAndFlush(piece));
      PlaitModel own = (PlaitModel) model.getWrappedModel();
      for (int i = 0; i < 500 && own.generator().statistics().getRunning() == 0; ++i) Thread.sleep(10);
      Thread.sleep(200);
      assertEquals(1, own.generator().statistics().getRunning());
      connection.close();
      for (int i = 0; i < 500 && own.generator().statistics().getRunning() > 0; ++i) Thread.sleep(10);
      assertEquals(0, own.generator().statistics().getRunning());
    }
  }

  @Test
  void unloadedWhileItRuns() throws Exception {
    ZooModel<Input, Output> model = serveForEver();
    Predictor<Input, Output> worker = model.newPredictor();
    Output output = worker.predict(input("{'inputs': '" + PROMPT + "'}"));
    model.close();  // before its workers, as the server does
    String said = body(output).get();
    assertTrue(said.contains("unloaded") && said.contains("424"), said);
    Output late = worker.predict(input("{'inputs': 'x'}"));
    assertEquals(424, late.getCode());
    worker.close();
  }

  @Test
  void mistakes() throws Exception {
    try (ZooModel<Input, Output> model = serve(); Predictor<Input, Output> worker = model.newPredictor()) {
      for (String json : new String[] {"no json", "[]", "{}", "{'inputs': 'x', 'parameters': {'top_p': 7}}", "{'messages': 5}",
          "{'inputs': ['x', 'y'], 'stream': true}", "{'inputs': 'x', 'stream': true, 'parameters': {'decoder_input_details': true}}"}) {
        Output output = worker.predict(input(json));
        assertEquals(400, output.getCode(), json);
        assertFalse(object(output.getData().getAsString()).get("error").getAsString().isEmpty());
      }
      assertEquals(400, worker.predict(new Input()).getCode());
    }
    for (String property : new String[] {"option.dtype=fp8", "option.quantize=awq", "option.output_formatter=xml", "option.plait.mesh=x",
        "option.pipeline_parallel_degree=2"}) {
      assertThrows(Exception.class, () -> serve(property).close(), property);
    }
  }

  @Test
  void plainJava() throws Exception {
    Criteria<String, Request> criteria = Criteria.builder().setTypes(String.class, Request.class).optModelPath(model())
        .optEngine("Plait").optTranslatorFactory(new PlaitTranslatorFactory()).optArgument("plait.temperature", 0).build();
    try (ZooModel<String, Request> model = criteria.loadModel(); Predictor<String, Request> predictor = model.newPredictor();
        Request request = predictor.predict(PROMPT)) {
      int[] ids = request.tokens().filter(token -> token.id() >= 0).mapToInt(Token::id).limit(4).toArray();
      assertArrayEquals(new int[] {159, 254, 402, 402}, ids);
    }
  }

  /** In the shape of ai.djl.genai's types. */
  static final class Chat {
    final List<Message> messages = Arrays.asList(new Message());
    final boolean stream;

    Chat(boolean stream) {
      this.stream = stream;
    }

    static final class Message {
      final String role = "user";
      final String content = "hello";
    }
  }

  public static final class ChatOut {
    final List<String> pieces = new ArrayList<>();

    public static ChatOut fromJson(String json) {
      ChatOut out = new ChatOut();
      out.pieces.add(json);
      return out;
    }

    public static ChatOut fromJson(Iterator<String> json) {
      ChatOut out = new ChatOut();
      json.forEachRemaining(out.pieces::add);
      return out;
    }
  }

  @Test
  void typesOfTheHost() throws Exception {
    Criteria<Chat, ChatOut> criteria = Criteria.builder().setTypes(Chat.class, ChatOut.class).optModelPath(model()).optEngine("Plait")
        .optTranslatorFactory(new PlaitTranslatorFactory()).build();
    try (ZooModel<Chat, ChatOut> model = criteria.loadModel(); Predictor<Chat, ChatOut> predictor = model.newPredictor()) {
      assertEquals("chat.completion", object(predictor.predict(new Chat(false)).pieces.get(0)).get("object").getAsString());
      List<String> pieces = predictor.predict(new Chat(true)).pieces;
      assertTrue(pieces.size() > 2);
      for (String piece : pieces) assertEquals("chat.completion.chunk", object(piece).get("object").getAsString());
    }
  }
}

package ai.plait;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** scenarios.txt in Java. */
class ScenariosTest {
  private static Model model;
  private static Generator generator;

  @BeforeAll
  static void open() {
    model = Model.open(Lists.model());
    generator = model.generator(Lists.small());
  }

  @AfterAll
  static void close() {
    model.close();
    generator.close();
  }

  @Test
  void streamText() {
    long tokens = Long.parseLong(Lists.text("stream.max_tokens"));
    List<Integer> ids = new ArrayList<>();
    StringBuilder text = new StringBuilder();
    try (Request request = generator.submit(Lists.text("stream.prompt"), Lists.greedy(tokens))) {
      while (request.hasNext()) {
        Token token = request.next();
        if (token.id() >= 0) ids.add(token.id());
        text.append(token.text());
      }
      assertEquals(tokens, request.usage().getNewTokens());
    }
    assertArrayEquals(Lists.ids("stream.tokens"), ids.stream().mapToInt(Integer::intValue).toArray());
    assertArrayEquals(Lists.hex("stream.text_hex"), text.toString().getBytes(StandardCharsets.UTF_8));
    try (Request request = generator.submit(Lists.text("stream.prompt"), Lists.greedy(tokens))) {
      assertEquals(text.toString(), request.text());
    }
  }

  @Test
  void batchOfPrompts() {
    Options options = Lists.greedy(Long.parseLong(Lists.text("batch.max_tokens")));
    List<Request> requests = new ArrayList<>();
    for (String prompt : Lists.text("batch.prompts").split(";")) requests.add(generator.submit(Lists.idsOf(prompt), options));
    String[] expected = Lists.text("batch.tokens").split(";");
    assertEquals(expected.length, requests.size());
    for (int i = 0; i < expected.length; ++i) {
      assertArrayEquals(Lists.idsOf(expected[i]), Lists.pull(requests.get(i)));
      requests.get(i).close();
    }
  }

  /** The same, pulled by one thread as tokens come. */
  @Test
  void requestsByMailbox() {
    Options options = Lists.greedy(Long.parseLong(Lists.text("batch.max_tokens")));
    String[] prompts = Lists.text("batch.prompts").split(";");
    String[] expected = Lists.text("batch.tokens").split(";");
    List<Request> requests = new ArrayList<>();
    List<List<Integer>> got = new ArrayList<>();
    try (Mailbox mailbox = new Mailbox()) {
      for (String prompt : prompts) {
        requests.add(generator.submit(Lists.idsOf(prompt), options));
        got.add(new ArrayList<>());
        requests.get(requests.size() - 1).attach(mailbox, requests.size() - 1);
      }
      int ended = 0;
      while (ended < prompts.length) {
        int tag = (int) mailbox.poll(Duration.ofMinutes(1)).getAsLong();
        Request request = requests.get(tag);
        for (Token token = request.poll(Duration.ZERO); token != null; token = request.poll(Duration.ZERO)) {
          if (token.id() >= 0) got.get(tag).add(token.id());
        }
        if (request.ended()) ++ended;
      }
      assertFalse(mailbox.poll(Duration.ZERO).isPresent());
      mailbox.post(-7);
      assertEquals(-7, mailbox.poll(null).getAsLong());
    }
    for (int i = 0; i < expected.length; ++i) {
      assertArrayEquals(Lists.idsOf(expected[i]), got.get(i).stream().mapToInt(Integer::intValue).toArray());
      requests.get(i).close();
    }
  }

  /** What other programs get over HTTP while this one generates. */
  @Test
  void serverInside() throws IOException {
    try (Server server = new Server(new Options().set("address", "127.0.0.1:0"))) {
      server.add("gemma", model, generator);
      assertThrows(PlaitException.class, () -> server.add("gemma", model, generator));
      HttpURLConnection call = (HttpURLConnection) new URL(server.address() + "/v1/completions").openConnection();
      call.setDoOutput(true);
      String body = "{\"model\": \"gemma\", \"prompt\": \"" + Lists.text("stream.prompt") + "\", \"max_tokens\": 12, \"temperature\": 0}";
      try (OutputStream out = call.getOutputStream()) {
        out.write(body.getBytes(StandardCharsets.UTF_8));
      }
      assertEquals(200, call.getResponseCode());
      try (InputStream in = call.getInputStream()) {
        assertTrue(new String(in.readAllBytes(), StandardCharsets.UTF_8).contains("\"completion_tokens\":12"));
      }
      call.disconnect();
      assertTrue(server.drain(Duration.ofSeconds(30)));
      assertEquals(0, server.statistics().getCalls());
    }
  }

  @Test
  void embeddings() {
    try (Request request = generator.submit(Lists.ids("prompt"), new Options().kind("embed").pooling("mean"));
        Tensor result = request.result()) {
      float[] values = result.floats();
      String[] expected = Lists.text("embed.first").split(",");
      for (int i = 0; i < expected.length; ++i) assertEquals(Float.parseFloat(expected[i]), values[i], 1e-4f);
    }
  }

  @Test
  void promptLogprobs() {
    String[] expected = Lists.text("prompt_logprobs").split(",");
    int tokens = 0;
    try (Request request = generator.submit(Lists.ids("prompt"), new Options().promptLogprobs(2).maxTokens(1))) {
      for (Token token = request.poll(null); token != null; token = request.poll(null)) {
        if (!token.isPrompt()) continue;
        if (tokens > 0) {
          assertEquals(Float.parseFloat(expected[tokens - 1]), token.logprob(), 1e-4f);
          assertEquals(2, token.topIds().length);
        } else {
          assertTrue(Float.isNaN(token.logprob()));
        }
        ++tokens;
      }
    }
    assertEquals(expected.length + 1, tokens);
  }

  @Test
  void stringsAndLists() {
    String[] words = Lists.text("strings.words").split(";"), x = Lists.text("strings.x").split(",");
    String[] joined = Lists.text("strings.joined").split(",");
    Tensor[] parts = new Tensor[words.length];
    for (int i = 0; i < words.length; i++) {
      String[] part = words[i].split(",");
      parts[i] = Tensor.of(part, part.length);
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (int i = 1; i <= 4; i++) bytes.writeBytes(Lists.hex("strings.model_hex" + i));
    Map<String, Tensor> file = Map.of("model.onnx", Tensor.of(bytes.toByteArray()));
    try (Model model = Model.open(file, new Options()); Session session = model.session(new Options().threads(1))) {
      assertEquals(1, session.inputs().get(0).getIsList());
      Map<String, Tensor> inputs = Map.of("words", Tensor.list(DType.STRING, parts), "x", Tensor.of(x, x.length));
      Map<String, Tensor> out = session.run(inputs, "joined", "more");
      assertArrayEquals(joined, out.get("joined").strings());
      Tensor[] more = out.get("more").parts();
      assertEquals(parts.length + 1, more.length);
      for (int i = 0; i < parts.length; i++) assertArrayEquals(words[i].split(","), more[i].strings());
      assertArrayEquals(joined, more[parts.length].strings());
      assertThrows(PlaitException.class, () -> more[0].longs());
    }
  }

  @Test
  void optionalSequence() {
    String[] words = Lists.text("strings.words").split(";");
    Tensor[] parts = new Tensor[words.length];
    for (int i = 0; i < words.length; i++) {
      String[] part = words[i].split(",");
      parts[i] = Tensor.of(part, part.length);
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (int i = 1; i <= 3; i++) bytes.writeBytes(Lists.hex("optional.model_hex" + i));
    Map<String, Tensor> file = Map.of("model.onnx", Tensor.of(bytes.toByteArray()));
    try (Model model = Model.open(file, new Options()); Session session = model.session(new Options().threads(1))) {
      assertEquals(2, session.inputs().get(0).getIsList());
      Tensor given = Tensor.list(DType.STRING, Tensor.list(DType.STRING, parts));
      Tensor[] again = session.run(Map.of("given", given), "again").get("again").parts();
      assertEquals(1, again.length);
      Tensor[] found = again[0].parts();
      assertEquals(parts.length, found.length);
      for (int i = 0; i < parts.length; i++) assertArrayEquals(words[i].split(","), found[i].strings());
      assertEquals(0, session.run(Map.of("given", Tensor.list(DType.STRING)), "again").get("again").parts().length);
    }
  }

  @Test
  void sessionTensors() {
    int[] prompt = Lists.ids("prompt");
    try (Model file = Model.open(Lists.FIXTURES.resolve(Lists.text("session.model")));
        Session session = file.session(new Options().threads(1))) {
      Map<String, Tensor> inputs = new LinkedHashMap<>();
      for (Operand operand : session.inputs()) {
        long[] dims = operand.getDims();
        if (operand.getName().contains("past")) {
          inputs.put(operand.getName(), Tensor.of(new float[0], 1, dims[1], 0, dims[3]));
          continue;
        }
        long[] values = new long[prompt.length];
        for (int i = 0; i < values.length; ++i) {
          values[i] = operand.getName().equals("input_ids") ? prompt[i] : operand.getName().equals("position_ids") ? i : 1;
        }
        inputs.put(operand.getName(), Tensor.of(values, 1, values.length));
      }
      Tensor logits = session.run(inputs, "logits").get("logits");
      FloatBuffer values = logits.buffer().asFloatBuffer();
      logits.close();  // the buffer keeps the memory
      int width = values.remaining() - 512;
      values.position(width);
      assertEquals(Integer.parseInt(Lists.text("session.likeliest")), likeliest(values.slice()));
      assertTrue(session.outputs().stream().anyMatch(output -> output.getName().equals("logits")));
    }
  }

  @Test
  void hostSampling() {
    Options options = Lists.greedy(16).hostSampling(true);
    try (Request request = generator.submit(Lists.ids("prompt"), options).sampler(ScenariosTest::likeliest)) {
      assertArrayEquals(Lists.ids("greedy"), Lists.pull(request));
    }
    // The same without a sampler: logits come, tokens are pushed.
    List<Integer> ids = new ArrayList<>();
    try (Request request = generator.submit(Lists.ids("prompt"), options)) {
      for (Token token = request.poll(null); token != null; token = request.poll(null)) {
        if (token.logits() != null) request.push(likeliest(FloatBuffer.wrap(token.logits())));
        if (token.id() >= 0) ids.add(token.id());
      }
    }
    assertArrayEquals(Lists.ids("greedy"), ids.stream().mapToInt(Integer::intValue).toArray());
  }

  @Test
  void modelFromMemory() throws IOException {
    Map<String, Tensor> files = new LinkedHashMap<>();
    for (String name : new String[] {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"}) {
      files.put(name, Tensor.of(Files.readAllBytes(Lists.model().resolve(name))));
    }
    Generator other;
    try (Model memory = Model.open(files, null)) {
      files.values().forEach(Tensor::close);
      other = memory.generator(Lists.small());
    }
    files = null;
    System.gc();  // what the model reads stays where it is
    try (Request request = other.submit(Lists.ids("prompt"), Lists.greedy(16))) {
      other.close();
      assertArrayEquals(Lists.ids("greedy"), Lists.pull(request));
    }
  }

  @Test
  void meshOfThreads() {
    try (Generator ranks = model.generator(Lists.small().mesh(Lists.text("mesh")));
        Request request = ranks.submit(Lists.ids("prompt"), Lists.greedy(16))) {
      assertArrayEquals(Lists.ids("greedy"), Lists.pull(request));
    }
  }

  @Test
  void savedConversation() {
    byte[] saved;
    try (Request begun = generator.submit(Lists.ids("prompt"),
        Lists.greedy(Long.parseLong(Lists.text("saved.max_tokens"))).keep(true))) {
      assertArrayEquals(Lists.ids("saved.begun"), Lists.pull(begun));
      saved = begun.save();
    }
    try (Generator other = model.generator(Lists.small());
        Request restored = other.restore(saved);
        Request more = other.submit(Lists.ids("saved.more"), Lists.greedy(16), restored)) {
      assertArrayEquals(Lists.ids("saved.continued"), Lists.pull(more));
    }
  }

  @Test
  void texts() {
    String text = new String(Lists.hex("utf8.hex"), StandardCharsets.UTF_8);
    try (Tokenizer tokenizer = model.tokenizer()) {
      int[] ids = tokenizer.encode(text, false);
      assertArrayEquals(Lists.ids("utf8.tokens"), ids);
      assertEquals(text, tokenizer.decode(ids, false));
      assertEquals(512, tokenizer.facts().getVocabulary());
      assertEquals(5, tokenizer.id(tokenizer.piece(5)));
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      for (int id : ids) {
        byte[] own = tokenizer.bytes(id);
        bytes.write(own, 0, own.length);
      }
      assertEquals(text, new String(bytes.toByteArray(), StandardCharsets.UTF_8));
    }
  }

  @Test
  void fineTune() {
    fineTune("");
    fineTune(Lists.text("train.mesh"));
  }

  private void fineTune(String mesh) {
    Options options = new Options().threads(1).set("optimizer", "sgd").set("lr", Lists.text("train.lr")).set("schedule", "constant")
        .set("weight_decay", 0).set("mesh", mesh);
    int[] document = Lists.ids("train.ids");
    try (Trainer trainer = model.trainer(options); Tensor ids = Tensor.of(document, 1, document.length)) {
      for (String loss : Lists.text("train.losses").split(",")) {
        assertEquals(Double.parseDouble(loss), trainer.step(ids, null).getLoss(), 1e-3);
      }
      assertTrue(trainer.evaluate(ids, null).getLoss() < Double.parseDouble(Lists.text("train.losses").split(",")[0]));
    }
  }

  @Test
  void adapters(@TempDir Path out) {
    Options options = new Options().threads(1).set("lora", 8).set("lr", Lists.text("adapter.lr")).set("schedule", "constant");
    int[] document = Lists.ids("adapter.ids");
    try (Trainer trainer = model.trainer(options); Tensor ids = Tensor.of(document, 1, document.length)) {
      for (int left = Integer.parseInt(Lists.text("adapter.steps")); left > 0; --left) trainer.step(ids, null);
      trainer.saveAdapter(out);
    }
    try (Generator adapted = model.generator(Lists.small().adapterRoom(1, 8))) {
      adapted.addAdapter("taught", out);
      assertEquals("[\"taught\"]", adapted.adapters());
      try (Request with = adapted.submit(Lists.ids("prompt"), Lists.greedy(8).adapter("taught"));
          Request without = adapted.submit(Lists.ids("prompt"), Lists.greedy(16))) {
        assertArrayEquals(Lists.ids("adapter.tokens"), Lists.pull(with));
        assertArrayEquals(Lists.ids("greedy"), Lists.pull(without));
      }
      adapted.removeAdapter("taught");
      PlaitException error = assertThrows(PlaitException.class,
          () -> adapted.submit(Lists.ids("prompt"), Lists.greedy(8).adapter("taught")));
      assertEquals(Status.NOT_FOUND, error.status());
      assertTrue(error.getMessage().contains("taught"));
    }
    try (Generator made = model.generator(Lists.small().adapter("taught", out));
        Request with = made.submit(Lists.ids("prompt"), Lists.greedy(8).adapter("taught"))) {
      assertArrayEquals(Lists.ids("adapter.tokens"), Lists.pull(with));
    }
  }

  /** A run of its own, through a file: the steps are pulled. */
  @Test
  void fineTuneAFile(@TempDir Path out) throws IOException {
    Path data = Files.write(out.resolve("texts.jsonl"), Arrays.asList("{\"text\": \"the river and the sea\"}",
        "{\"text\": \"the hills and the wind\"}"));
    Options options = new Options().threads(1).set("data", data).set("steps", 3).set("batch", 2).set("seq", 16).seed(1);
    try (Trainer trainer = model.trainer(options)) {
      List<TrainingStep> steps = new ArrayList<>();
      trainer.forEachRemaining(steps::add);
      assertEquals(Ending.STEPS, steps.get(steps.size() - 1).getEnding());
      assertEquals(3, steps.stream().filter(step -> step.getEnding() == Ending.NONE).count());
      trainer.export(out.resolve("tuned"));
    }
    try (Model tuned = Model.open(out.resolve("tuned"))) {
      assertTrue(tuned.info().contains("\"recognised\": true"));
    }
  }

  static int likeliest(FloatBuffer logits) {
    int best = 0;
    for (int i = 1; i < logits.remaining(); ++i) if (logits.get(i) > logits.get(best)) best = i;
    return best;
  }
}

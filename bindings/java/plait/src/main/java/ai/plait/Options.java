package ai.plait;

/**
 * Keys and values for models, generators, requests, sessions. {@link Plait#options} tells all there are; the commonest have a method.
 * What is wrong with a key or value is thrown as it is set. May be used again, by several threads.
 */
public final class Options extends NativeObject {
  public Options() {
    super(Native.plait_options_create(), Native::plait_options_release);
  }

  /** Sets a key again, or adds to it where it repeats ("stop"). */
  public Options set(String key, String value) {
    Native.plait_options_set(this, key, value);
    return this;
  }

  /** Of an option that is a tensor, which is copied ("inputs_embeds", "image_grid_thw"). */
  public Options set(String key, Tensor value) {
    Native.plait_options_set_tensor(this, key, value);
    return this;
  }

  /** Numbers and booleans. */
  public Options set(String key, Object value) {
    return set(key, String.valueOf(value));
  }

  // ---- Of generators and sessions

  public Options threads(int count) {
    return set("threads", count);
  }

  /** "file", "f32" or "bf16". */
  public Options dtype(String name) {
    return set("dtype", name);
  }

  /** The ranks that a model is spread over: "tensor=2". */
  public Options mesh(String mesh) {
    return set("mesh", mesh);
  }

  public Options cacheBytes(long bytes) {
    return set("cache_bytes", bytes);
  }

  /** Most samples that run at once. */
  public Options running(int samples) {
    return set("running", samples);
  }

  /** Most adapters at once, of this rank at most. */
  public Options adapterRoom(int slots, int rank) {
    return set("adapter_slots", slots).set("adapter_rank", rank);
  }

  /** One more adapter that a generator is made with, from a directory in PEFT's layout. */
  public Options adapter(String name, java.nio.file.Path directory) {
    return set("adapters", name + "=" + directory);
  }

  // ---- Of requests

  /** The name of an adapter of the generator's; "": none. */
  public Options adapter(String name) {
    return set("adapter", name);
  }

  public Options maxTokens(long count) {
    return set("max_tokens", count);
  }

  /** 0: greedy. */
  public Options temperature(double temperature) {
    return set("temperature", temperature);
  }

  public Options topK(int count) {
    return set("top_k", count);
  }

  public Options topP(double probability) {
    return set("top_p", probability);
  }

  public Options repetitionPenalty(double penalty) {
    return set("repetition_penalty", penalty);
  }

  public Options seed(long seed) {
    return set("seed", seed);
  }

  /** One more text that ends the output. */
  public Options stop(String text) {
    return set("stop", text);
  }

  public Options samples(int count) {
    return set("samples", count);
  }

  /** With this many alternatives to each token. */
  public Options logprobs(int alternatives) {
    return set("logprobs", alternatives);
  }

  /** The prompt's tokens come first ({@link Token#isPrompt}), with log-probabilities and so many alternatives. */
  public Options promptLogprobs(int alternatives) {
    return set("prompt_logprobs", alternatives);
  }

  public Options ignoreEos(boolean ignored) {
    return set("ignore_eos", ignored);
  }

  /** Keeps the conversation, to continue or save it. */
  public Options keep(boolean kept) {
    return set("keep", kept);
  }

  /** "generate", "score" or "embed". */
  public Options kind(String kind) {
    return set("kind", kind);
  }

  /** Of "embed": "none", "mean" or "last". */
  public Options pooling(String pooling) {
    return set("pooling", pooling);
  }

  public Options hostSampling(boolean byHost) {
    return set("host_sampling", byHost);
  }

  /** Ends the request so long after it was submitted. */
  public Options deadline(java.time.Duration time) {
    return set("deadline_ms", time.toMillis());
  }
}

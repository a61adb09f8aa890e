using System;
using System.Globalization;

namespace Plait {

/// <summary>Keys and values for models, generators, requests, sessions. <see cref="Library.Options"/> tells all there are; the
/// commonest have a method. What is wrong with a key or value is thrown as it is set. May be used again, by several threads.</summary>
public sealed class Options : NativeObject {
  /// <summary>None yet.</summary>
  public Options() : base(Make(), null) {}

  private static IntPtr Make() {
    Native.plait_options_create(out var made);
    return made;
  }

  internal override void Release(NativeObject number) {
    Native.plait_options_release(number);
  }

  /// <summary>Sets a key again, or adds to it where it repeats ("stop").</summary>
  public Options Set(string key, string value) {
    byte[] text = Utf8.Bytes(value);
    Native.plait_options_set(this, Utf8.Name(key), text, text.Length - 1);
    return this;
  }

  /// <summary>Of an option that is a tensor, which is copied ("inputs_embeds", "image_grid_thw").</summary>
  public Options Set(string key, Tensor value) {
    Native.plait_options_set_tensor(this, Utf8.Name(key), value);
    return this;
  }

  /// <summary>Numbers.</summary>
  public Options Set(string key, IFormattable value) {
    return Set(key, value.ToString(null, CultureInfo.InvariantCulture));
  }

  /// <summary>Switches.</summary>
  public Options Set(string key, bool value) {
    return Set(key, value ? "true" : "false");
  }

  // Of generators and sessions

  /// <summary>Threads that compute.</summary>
  public Options Threads(int count) { return Set("threads", count); }
  /// <summary>"file", "f32" or "bf16".</summary>
  public Options Dtype(string name) { return Set("dtype", name); }
  /// <summary>The ranks that a model is spread over: "tensor=2".</summary>
  public Options Mesh(string mesh) { return Set("mesh", mesh); }
  /// <summary>The budget of the cache.</summary>
  public Options CacheBytes(long bytes) { return Set("cache_bytes", bytes); }
  /// <summary>Most samples that run at once.</summary>
  public Options Running(int samples) { return Set("running", samples); }
  /// <summary>Most adapters at once, of this rank at most.</summary>
  public Options AdapterRoom(int slots, int rank) { return Set("adapter_slots", slots).Set("adapter_rank", rank); }
  /// <summary>One more adapter that a generator is made with, from a directory in PEFT's layout.</summary>
  public Options Adapter(string name, string directory) { return Set("adapters", name + "=" + directory); }

  // Of requests

  /// <summary>The name of an adapter of the generator's; "": none.</summary>
  public Options Adapter(string name) { return Set("adapter", name); }
  /// <summary>Most new tokens.</summary>
  public Options MaxTokens(long count) { return Set("max_tokens", count); }
  /// <summary>0: greedy.</summary>
  public Options Temperature(double temperature) { return Set("temperature", temperature); }
  /// <summary>Only the likeliest so many.</summary>
  public Options TopK(int count) { return Set("top_k", count); }
  /// <summary>Only the likeliest of that probability together.</summary>
  public Options TopP(double probability) { return Set("top_p", probability); }
  /// <summary>Against repetition.</summary>
  public Options RepetitionPenalty(double penalty) { return Set("repetition_penalty", penalty); }
  /// <summary>Of the sampling.</summary>
  public Options Seed(long seed) { return Set("seed", seed); }
  /// <summary>One more text that ends the output.</summary>
  public Options Stop(string text) { return Set("stop", text); }
  /// <summary>Outputs from one prompt.</summary>
  public Options Samples(int count) { return Set("samples", count); }
  /// <summary>With this many alternatives to each token.</summary>
  public Options Logprobs(int alternatives) { return Set("logprobs", alternatives); }
  /// <summary>The prompt's tokens come first (Token.IsPrompt), with log-probabilities and so many alternatives.</summary>
  public Options PromptLogprobs(int alternatives) { return Set("prompt_logprobs", alternatives); }
  /// <summary>The model's own end ends nothing.</summary>
  public Options IgnoreEos(bool ignored) { return Set("ignore_eos", ignored); }
  /// <summary>Keeps the conversation, to continue or save it.</summary>
  public Options Keep(bool kept) { return Set("keep", kept); }
  /// <summary>"generate", "score" or "embed".</summary>
  public Options Kind(string kind) { return Set("kind", kind); }
  /// <summary>Of "embed": "none", "mean" or "last".</summary>
  public Options Pooling(string pooling) { return Set("pooling", pooling); }
  /// <summary>Logits come, and tokens are pushed.</summary>
  public Options HostSampling(bool byHost) { return Set("host_sampling", byHost); }
  /// <summary>Ends the request so long after it was submitted.</summary>
  public Options Deadline(TimeSpan time) { return Set("deadline_ms", (long)time.TotalMilliseconds); }
}

}

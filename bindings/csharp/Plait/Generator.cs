using System;

namespace Plait {

/// <summary>A model with its weights loaded, a cache and a queue of requests, which run together. All calls at once. Disposing of it
/// ends nothing that was submitted.</summary>
public sealed class Generator : NativeObject {
  internal Generator(IntPtr number, Pins pins) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_generator_release(number);
  }

  /// <summary>Waits until it is loaded. Throws TIMEOUT.</summary>
  public void Wait(long milliseconds = -1) {
    Native.plait_generator_wait(this, milliseconds);
  }

  /// <summary>How much of the loading is done, 0 to 1.</summary>
  public double Progress {
    get {
      Native.plait_generator_progress(this, out var fraction);
      return fraction;
    }
  }

  /// <summary>Ends the loading.</summary>
  public void Cancel() {
    Native.plait_generator_cancel(this);
  }

  /// <summary>A prompt; <paramref name="parent"/> is a request that ended with the option "keep", or null.</summary>
  public Request Submit(string text, Options options = null, Request parent = null) {
    byte[] bytes = Utf8.Bytes(text);
    Native.plait_generator_submit_text(this, bytes, bytes.Length - 1, options, parent, out var made);
    return new Request(made, Pins);
  }

  /// <summary>Tokens, taken as they are.</summary>
  public Request Submit(int[] ids, Options options = null, Request parent = null) {
    if (ids == null) throw new ArgumentNullException(nameof(ids));
    Native.plait_generator_submit_ids(this, ids, ids.Length, options, parent, out var made);
    return new Request(made, Pins);
  }

  /// <summary>A whole conversation as a JSON list of messages; what the cache has of it is found by itself.</summary>
  public Request SubmitChat(string messages, Options options = null) {
    byte[] bytes = Utf8.Bytes(messages);
    Native.plait_generator_submit_chat(this, bytes, bytes.Length - 1, options, out var made);
    return new Request(made, Pins);
  }

  /// <summary>A request to continue from, out of Request.Save.</summary>
  public unsafe Request Restore(ReadOnlySpan<byte> saved) {
    fixed (byte* data = &System.Runtime.InteropServices.MemoryMarshal.GetReference(saved)) {
      Native.plait_generator_restore(this, (IntPtr)data, saved.Length, out var made);
      return new Request(made, Pins);
    }
  }

  /// <summary>Adds an adapter from a directory in PEFT's layout; requests may then name it (Options.Adapter). The generator's options
  /// set the capacity (Options.AdapterRoom).</summary>
  public void AddAdapter(string name, string directory) {
    Native.plait_generator_add_adapter(this, Utf8.Name(name), Utf8.Name(directory));
  }

  /// <summary>Requests can name it no more; those that did go on.</summary>
  public void RemoveAdapter(string name) {
    Native.plait_generator_remove_adapter(this, Utf8.Name(name));
  }

  /// <summary>The names that requests may use, as a JSON list.</summary>
  public string Adapters() {
    Native.plait_generator_adapters(this, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>What runs, waits, and takes memory.</summary>
  public GeneratorStats Statistics() {
    var stats = new GeneratorStats();
    Native.plait_generator_statistics(this, stats);
    return stats;
  }

  /// <summary>Seconds and calls per op as JSON, with the option "profile".</summary>
  public string Profile() {
    Native.plait_generator_profile(this, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>Histograms of what steps did and what requests were, as JSON.</summary>
  public string Histograms() {
    Native.plait_generator_histograms(this, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>What each rank holds, as JSON.</summary>
  public string Ranks() {
    Native.plait_generator_ranks(this, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>With the option "trace": what each rank did when, for Chrome's trace viewer.</summary>
  public string Trace() {
    Native.plait_generator_trace(this, out var json);
    return Tensor.TextOf(json);
  }
}

}

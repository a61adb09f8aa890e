package ai.plait;

import java.time.Duration;

/**
 * A model with its weights loaded, a cache and a queue of requests, which run together. All calls at once. Closing it ends nothing that
 * was submitted.
 */
public final class Generator extends NativeObject {
  Generator(long number, Object... kept) {
    super(number, Native::plait_generator_release, kept);
  }

  /** Waits until it is loaded. False on timeout; null: no limit. */
  public boolean await(Duration time) {
    return Waiting.until(time, slice -> Native.plait_generator_wait(this, slice));
  }

  /** How much of the loading is done, 0 to 1. */
  public double progress() {
    double[] fraction = new double[1];
    Native.plait_generator_progress(this, fraction);
    return fraction[0];
  }

  /** Ends the loading. */
  public void cancel() {
    Native.plait_generator_cancel(this);
  }

  public Request submit(String text, Options options) {
    return submit(text, options, null);
  }

  /** Continues {@code parent}, a request that ended with the option "keep", or null. */
  public Request submit(String text, Options options, Request parent) {
    return new Request(Native.plait_generator_submit_text(this, text, options, parent), this);
  }

  public Request submit(int[] ids, Options options) {
    return submit(ids, options, null);
  }

  public Request submit(int[] ids, Options options, Request parent) {
    return new Request(Native.plait_generator_submit_ids(this, ids, options, parent), this);
  }

  /** A whole conversation as a JSON list of messages; what the cache has of it is found by itself. */
  public Request submitChat(String messages, Options options) {
    return new Request(Native.plait_generator_submit_chat(this, messages, options), this);
  }

  /** A request to continue from, out of {@link Request#save}. */
  public Request restore(byte[] saved) {
    return restore(java.nio.ByteBuffer.wrap(saved));
  }

  public Request restore(java.nio.ByteBuffer saved) {
    return new Request(Native.plait_generator_restore(this, Tensor.direct(saved)), this);
  }

  /**
   * Adds an adapter from a directory in PEFT's layout; requests may then name it ({@link Options#adapter(String)}). The generator's
   * options set the capacity ({@link Options#adapterRoom}).
   */
  public void addAdapter(String name, java.nio.file.Path directory) {
    Native.plait_generator_add_adapter(this, name, directory.toString());
  }

  /** Requests can name it no more; those that did go on. */
  public void removeAdapter(String name) {
    Native.plait_generator_remove_adapter(this, name);
  }

  /** The names that requests may use, as a JSON list. */
  public String adapters() {
    return Tensor.textOf(Native.plait_generator_adapters(this));
  }

  public GeneratorStats statistics() {
    GeneratorStats out = new GeneratorStats();
    Native.plait_generator_statistics(this, out);
    return out;
  }

  /** Seconds and calls per op as JSON, with the option "profile". */
  public String profile() {
    return Tensor.textOf(Native.plait_generator_profile(this));
  }

  /** Histograms of what steps did and what requests were, as JSON. */
  public String histograms() {
    return Tensor.textOf(Native.plait_generator_histograms(this));
  }

  /** What each rank holds, as JSON. */
  public String ranks() {
    return Tensor.textOf(Native.plait_generator_ranks(this));
  }

  /** With the option "trace": what each rank did when, for Chrome's trace viewer. */
  public String trace() {
    return Tensor.textOf(Native.plait_generator_trace(this));
  }
}

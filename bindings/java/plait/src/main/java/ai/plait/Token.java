package ai.plait;

/** What a request gives: a token and its text, the end of a sample, or logits that wait for the host's choice. */
public final class Token {
  private static final int[] NO_IDS = {};
  private static final float[] NO_LOGPROBS = {};

  private final int sample;
  private final int id;
  private final String text;
  private final float logprob;
  private final Finish finish;
  private int[] topIds = NO_IDS;
  private float[] topLogprobs = NO_LOGPROBS;
  private float[] logits;
  private int stop = -1;
  private int rank;
  private boolean prompt;

  Token(int sample, int id, String text, float logprob, Finish finish) {
    this.sample = sample;
    this.id = id;
    this.text = text;
    this.logprob = logprob;
    this.finish = finish;
  }

  Token withTop(int[] ids, float[] logprobs) {
    topIds = ids;
    topLogprobs = logprobs;
    return this;
  }

  Token withLogits(float[] values) {
    logits = values;
    return this;
  }

  Token withStop(int index) {
    stop = index;
    return this;
  }

  Token withRank(int place) {
    rank = place;
    return this;
  }

  Token withPrompt(boolean value) {
    prompt = value;
    return this;
  }

  /** With the option "prompt_logprobs": one of the prompt's tokens, which come first. */
  public boolean isPrompt() {
    return prompt;
  }

  /** Which output, with the option "samples". */
  public int sample() {
    return sample;
  }

  /** -1 for what is no token: the end of a sample, logits. */
  public int id() {
    return id;
  }

  /** What this adds to the output: whole characters, often "". */
  public String text() {
    return text;
  }

  /** Of the model's own distribution; NaN without the option "logprobs", and of the first token of a prompt. */
  public float logprob() {
    return logprob;
  }

  /** Its place in that distribution, 1: the most likely; 0 where {@link #logprob} is NaN. */
  public int rank() {
    return rank;
  }

  /** Other than NONE: the last of its sample. */
  public Finish finish() {
    return finish;
  }

  /** Which text of the option "stop", from 0, ended the sample; -1: none. */
  public int stop() {
    return stop;
  }

  /** The likeliest tokens, as many as the option "logprobs" asks for. */
  public int[] topIds() {
    return topIds;
  }

  public float[] topLogprobs() {
    return topLogprobs;
  }

  /** With the option "host_sampling": one per token of the vocabulary, and {@link Request#push} must follow; otherwise null. */
  public float[] logits() {
    return logits;
  }

  @Override
  public String toString() {
    return "Token{sample=" + sample + ", id=" + id + ", text=" + text + ", finish=" + finish + "}";
  }
}

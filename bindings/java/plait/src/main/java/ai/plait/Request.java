package ai.plait;

import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongConsumer;
import java.util.function.ToIntFunction;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A prompt that was submitted: pulls what is generated. All calls at once; threads that pull at once share the tokens out. Closing it
 * cancels it.
 */
public final class Request extends NativeObject implements Iterator<Token> {
  private final AtomicReference<Pulled> spare = new AtomicReference<>();
  private volatile ToIntFunction<FloatBuffer> sampler;
  private Token ahead;  // what hasNext pulled
  private volatile boolean ended;

  Request(long number, Object... kept) {
    super(number, Native::plait_request_release, kept);
  }

  /**
   * The host's own sampling, with the option "host_sampling": chooses a token from logits, which are valid during the call. Runs in the
   * thread that pulls.
   */
  public Request sampler(ToIntFunction<FloatBuffer> sampler) {
    this.sampler = sampler;
    return this;
  }

  /** The next token, waiting at most {@code time} (null: no limit); null if none came, or all have ended ({@link #ended}). */
  public Token poll(Duration time) {
    Pulled spared = spare.getAndSet(null);
    Pulled pulled = spared == null ? new Pulled() : spared;
    try {
      return Waiting.until(time, pulled) ? pulled.token : null;
    } finally {
      pulled.token = null;
      spare.set(pulled);
    }
  }

  /** A pull, and what it needs, used again and again: a token leaves no garbage. */
  private final class Pulled implements LongConsumer {
    final Event event = new Event();
    byte[] text = new byte[64];
    float[] logits;
    Token token;

    @Override
    public void accept(long timeout) {
      token = pull(this, timeout);
    }
  }

  /** Whether there is nothing more to pull. */
  public boolean ended() {
    return ended;
  }

  @Override
  public synchronized boolean hasNext() {
    if (ahead == null && !ended) ahead = poll(null);
    return ahead != null;
  }

  @Override
  public synchronized Token next() {
    if (!hasNext()) throw new NoSuchElementException("the request has ended");
    Token out = ahead;
    ahead = null;
    return out;
  }

  /** All tokens, as they come. */
  public Stream<Token> tokens() {
    return StreamSupport.stream(Spliterators.spliteratorUnknownSize(this, Spliterator.ORDERED | Spliterator.NONNULL), false);
  }

  /** The text of sample 0, as it comes. */
  public Stream<String> texts() {
    return tokens().filter(token -> token.sample() == 0 && !token.text().isEmpty()).map(Token::text);
  }

  /** All of sample 0's text; waits for the end. */
  public String text() {
    StringBuilder out = new StringBuilder();
    texts().forEach(out::append);
    return out.toString();
  }

  /** The tokens for one subscriber, pulled by a thread of {@code executor}; the subscriber's cancel cancels the request. */
  public Flow.Publisher<Token> publisher(Executor executor) {
    return new TokenPublisher(this, executor);
  }

  /** On daemon threads, one for each request with a waiting subscriber. */
  public Flow.Publisher<Token> publisher() {
    return publisher(TokenPublisher.THREADS);
  }

  /** From now on {@code tag} is posted to the mailbox (null: none) when there is something to pull, and again after a pull found nothing. */
  public void attach(Mailbox mailbox, long tag) {
    Native.plait_request_attach(this, mailbox, tag);
  }

  /** With the option "host_sampling": the token that follows the logits pulled last. */
  public void push(int token) {
    Native.plait_request_push(this, token);
  }

  /** Ends it soon: its samples finish with CANCELLED. */
  public void cancel() {
    Native.plait_request_cancel(this);
  }

  public Usage usage() {
    Usage out = new Usage();
    Native.plait_request_usage(this, out);
    return out;
  }

  /** Of the kinds "score" (logits [s, v]) and "embed" (hidden states [s, h], or [h] with "pooling"); waits for the end. */
  public Tensor result() {
    return new Tensor(Native.plait_request_result(this));
  }

  /** The kept conversation, for {@link Generator#restore}. */
  public byte[] save() {
    try (Tensor bytes = new Tensor(Native.plait_request_save(this))) {
      return bytes.toBytes();
    }
  }

  /** Null at the end. Throws TIMEOUT when nothing came. */
  private Token pull(Pulled pulled, long timeout) {
    for (;;) {
      Event event = pulled.event;
      Native.plait_request_next(this, timeout, event);
      EventKind kind = event.getKind();
      if (kind == EventKind.END) {
        ended = true;
        return null;
      }
      ToIntFunction<FloatBuffer> choice = sampler;
      if (kind != EventKind.LOGITS || choice == null) return token(pulled, kind);
      push(choice.applyAsInt(FloatBuffer.wrap(logits(pulled))));
    }
  }

  private static Token token(Pulled pulled, EventKind kind) {
    Event event = pulled.event;
    Token out = new Token(event.getSample(), event.getToken(), text(pulled), event.getLogprob(), event.getFinish());
    out.withStop(event.getStop()).withRank(event.getRank()).withPrompt(kind == EventKind.PROMPT);
    int top = event.getTopCount();
    if (top > 0) {
      int[] ids = new int[top];
      float[] logprobs = new float[top];
      event.copyTop(ids, logprobs);
      out.withTop(ids, logprobs);
    }
    if (kind == EventKind.LOGITS) out.withLogits(logits(pulled).clone());
    return out;
  }

  private static String text(Pulled pulled) {
    int length = Math.toIntExact(pulled.event.getTextLength());
    if (length == 0) return "";
    if (pulled.text.length < length) pulled.text = new byte[2 * length];
    pulled.event.copyText(pulled.text);
    return new String(pulled.text, 0, length, java.nio.charset.StandardCharsets.UTF_8);
  }

  private static float[] logits(Pulled pulled) {
    int count = Math.toIntExact(pulled.event.getLogitsCount());
    if (pulled.logits == null || pulled.logits.length != count) pulled.logits = new float[count];
    pulled.event.copyLogits(pulled.logits);
    return pulled.logits;
  }
}

package ai.plait.serve;

import ai.plait.PlaitException;
import ai.plait.Request;
import ai.plait.Status;
import ai.plait.Token;
import java.time.Duration;
import java.util.List;

/** A query on its way: pulls its requests' tokens, and hands on what the reply makes of them. Runs in a thread of its own. */
public final class Exchange implements Runnable {
  /** How often it looks whether the client is there still, while nothing comes. */
  private static final Duration LOOK = Duration.ofMillis(50);

  /** Takes pieces of the reply; the last one is told. */
  public interface Sink {
    void accept(String piece, boolean last);
  }

  /** Who gets the reply. */
  public interface Client {
    boolean hasLeft();

    /** Whether {@link #hasLeft} would tell. */
    boolean isWatched();
  }

  private final List<Request> requests;
  private final Reply reply;
  private final Sink sink;
  private final Client client;
  private final Duration limit;
  private volatile boolean unloaded;
  private long since;

  /** {@code limit}: maximum time without a token, or in total for a client whose connection cannot be checked; then the reply ends with an error. */
  public Exchange(List<Request> requests, Reply reply, Sink sink, Client client, Duration limit) {
    this.requests = requests;
    this.reply = reply;
    this.sink = sink;
    this.client = client;
    this.limit = limit;
  }

  /** The model goes: the client gets an error. From any thread. */
  public void unload() {
    unloaded = true;
    requests.forEach(Request::close);
  }

  @Override
  public void run() {
    since = System.nanoTime();
    try {
      for (int input = 0; input < requests.size(); ++input) {
        if (!pull(input)) return;
      }
      sink.accept(reply.end(requests), true);
    } catch (PlaitException error) {
      String said = unloaded ? "the model was unloaded" : error.getMessage();
      sink.accept(reply.error(said, codeOf(error.status())), true);
    } finally {
      requests.forEach(Request::close);
    }
  }

  /** False: the client has left, or there was nothing for it for too long. */
  private boolean pull(int input) {
    Request request = requests.get(input);
    for (;;) {
      if (client.hasLeft()) return false;
      Token token = request.poll(LOOK);
      if (token == null && request.ended()) return true;
      if (token != null && client.isWatched()) since = System.nanoTime();
      if (System.nanoTime() - since > limit.toNanos()) {
        sink.accept(reply.error("nothing came for " + limit.toSeconds() + " s (option.predict_timeout)", 424), true);
        return false;
      }
      String piece = token == null ? null : reply.token(input, token);
      if (piece != null) sink.accept(piece, false);
    }
  }

  /** As an HTTP status. */
  public static int codeOf(Status status) {
    switch (status) {
      case INVALID_ARGUMENT:
      case NOT_FOUND:
      case UNSUPPORTED:
        return 400;
      case OVERLOADED:
        return 503;
      default:
        return 424;
    }
  }
}

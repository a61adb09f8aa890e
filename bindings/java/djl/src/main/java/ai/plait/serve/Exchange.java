package ai.plait.serve;

import ai.plait.PlaitException;
import ai.plait.Request;
import ai.plait.Status;
import ai.plait.Token;
import java.time.Duration;
import java.util.List;
import java.util.function.BooleanSupplier;

/** A query on its way: pulls its requests' tokens, and hands on what the reply makes of them. Runs in a thread of its own. */
public final class Exchange implements Runnable {
  /** How often it looks whether the client is there still, while nothing comes. */
  private static final Duration LOOK = Duration.ofMillis(50);

  /** Takes pieces of the reply; the last one is told. */
  public interface Sink {
    void accept(String piece, boolean last);
  }

  private final List<Request> requests;
  private final Reply reply;
  private final Sink sink;
  private final BooleanSupplier gone;
  private volatile boolean unloaded;

  public Exchange(List<Request> requests, Reply reply, Sink sink, BooleanSupplier gone) {
    this.requests = requests;
    this.reply = reply;
    this.sink = sink;
    this.gone = gone;
  }

  /** The model goes: the client gets an error. From any thread. */
  public void unload() {
    unloaded = true;
    requests.forEach(Request::close);
  }

  @Override
  public void run() {
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

  /** False: the client has left. */
  private boolean pull(int input) {
    Request request = requests.get(input);
    for (;;) {
      if (gone.getAsBoolean()) return false;
      Token token = request.poll(LOOK);
      if (token == null && request.ended()) return true;
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

package ai.plait.djl;

import ai.djl.util.JsonUtils;
import ai.plait.serve.Exchange;
import ai.plait.serve.Query;
import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Types of the host that are written and read as JSON. */
final class JsonTranslator<I, O> extends OneByOne<I, O> {
  private final PlaitModel model;
  private final Class<O> output;
  private final Method stream;
  private final Method whole;

  /** One of the two methods may be null. */
  JsonTranslator(PlaitModel model, Class<O> output, Method stream, Method whole) {
    this.model = model;
    this.output = output;
    this.stream = stream;
    this.whole = whole;
  }

  @Override
  O answer(I input) throws Exception {
    Query query = new Query(input instanceof String ? (String) input : JsonUtils.GSON.toJson(input), "", model.options());
    Method reader = query.stream() ? stream : whole;
    if (reader == null) {
      throw new IllegalArgumentException(output + " cannot be read from what is " + (query.stream() ? "streamed" : "sent whole")
          + ": set \"stream\" of the input accordingly");
    }
    Pieces pieces = new Pieces();
    model.start(new Exchange(query.submit(model.generator()), model.replyTo(query), pieces::add, pieces, model.options().limit()));
    return output.cast(reader.invoke(null, query.stream() ? pieces : pieces.next()));
  }

  /** Pieces as they come; one JSON text each. */
  private static final class Pieces implements Iterator<String>, Exchange.Client {
    private static final String END = new String();

    private final BlockingQueue<String> queue = new LinkedBlockingQueue<>();
    private String ahead;

    /** It is this process. */
    @Override
    public boolean hasLeft() {
      return false;
    }

    @Override
    public boolean isWatched() {
      return true;
    }

    void add(String piece, boolean last) {
      if (!piece.isEmpty()) queue.add(piece.trim());
      if (last) queue.add(END);
    }

    @Override
    public boolean hasNext() {
      try {
        if (ahead == null) ahead = queue.take();
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        ahead = END;
      }
      return !isEnd();
    }

    @Override
    public String next() {
      if (!hasNext()) throw new NoSuchElementException();
      String out = ahead;
      ahead = null;
      return out;
    }

    @SuppressWarnings("StringEquality")
    private boolean isEnd() {
      return ahead == END;
    }
  }
}

package ai.plait;

import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Tokens as the subscriber asks for them: a thread is busy with the request only while there is demand. */
final class TokenPublisher implements Flow.Publisher<Token> {
  static final Executor THREADS = Executors.newCachedThreadPool(work -> {
    Thread thread = new Thread(work, "plait-publisher");
    thread.setDaemon(true);
    return thread;
  });

  private final Request request;
  private final Executor executor;
  private final AtomicBoolean taken = new AtomicBoolean();

  TokenPublisher(Request request, Executor executor) {
    this.request = request;
    this.executor = executor;
  }

  @Override
  public void subscribe(Flow.Subscriber<? super Token> subscriber) {
    boolean first = taken.compareAndSet(false, true);
    Pull pull = new Pull(subscriber, first);
    subscriber.onSubscribe(pull);
    if (!first) subscriber.onError(new IllegalStateException("the request has a subscriber already"));
  }

  private final class Pull implements Flow.Subscription, Runnable {
    private final Flow.Subscriber<? super Token> subscriber;
    private final AtomicLong demand = new AtomicLong();
    private volatile boolean done;

    Pull(Flow.Subscriber<? super Token> subscriber, boolean live) {
      this.subscriber = subscriber;
      this.done = !live;
    }

    @Override
    public void request(long count) {
      if (done) return;
      if (count <= 0) {
        cancel();
        subscriber.onError(new IllegalArgumentException("asked for " + count + " tokens"));
        return;
      }
      // Demand above zero starts a thread, which runs until the demand is met.
      if (demand.getAndUpdate(before -> before + count < 0 ? Long.MAX_VALUE : before + count) != 0) return;
      try {
        executor.execute(this);
      } catch (RejectedExecutionException error) {
        fail(error);
      }
    }

    @Override
    public void cancel() {
      done = true;
      if (!request.isClosed()) request.cancel();
    }

    @Override
    public void run() {
      try {
        while (!done) {
          if (!request.hasNext()) {
            done = true;
            subscriber.onComplete();
            return;
          }
          subscriber.onNext(request.next());
          if (demand.updateAndGet(before -> before == Long.MAX_VALUE ? before : before - 1) == 0) return;
        }
      } catch (RuntimeException error) {
        fail(error);
      }
    }

    private void fail(RuntimeException error) {
      if (done) return;
      cancel();
      subscriber.onError(error);
    }
  }
}

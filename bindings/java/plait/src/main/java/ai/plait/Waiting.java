package ai.plait;

import java.time.Duration;
import java.util.function.LongConsumer;

/** Native waits that an interrupted thread leaves. */
final class Waiting {
  /** Milliseconds between two looks at the interrupt: what an interrupt takes at worst. */
  private static final long SLICE = 100;
  private static final Duration MOST = Duration.ofNanos(Long.MAX_VALUE / 4);

  private Waiting() {}

  /** Calls {@code wait} with slices of the time until it returns; false on timeout. Null: no limit. */
  static boolean until(Duration time, LongConsumer wait) {
    long end = time == null ? Long.MAX_VALUE : saturated(System.nanoTime(), time);
    for (;;) {
      long left = time == null ? SLICE : Math.max(0, (end - System.nanoTime() + 999_999) / 1_000_000);
      try {
        wait.accept(Math.min(SLICE, left));
        return true;
      } catch (PlaitException error) {
        if (error.status() != Status.TIMEOUT) throw error;
      }
      if (left <= SLICE && time != null) return false;
      if (Thread.currentThread().isInterrupted()) {
        throw new PlaitException(Status.CANCELLED, "the thread that waited was interrupted", "");
      }
    }
  }

  private static long saturated(long now, Duration time) {
    return now + (time.compareTo(MOST) > 0 ? MOST : time).toNanos();
  }
}

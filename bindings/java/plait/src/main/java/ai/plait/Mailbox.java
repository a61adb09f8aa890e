package ai.plait;

import java.time.Duration;
import java.util.OptionalLong;

/**
 * One wait for many requests: each posts its tag when it has something to return ({@link Request#attach}). Take its tokens with
 * {@link Request#poll} and a time of zero until nothing comes, then wait for the next tag. All calls at once.
 */
public final class Mailbox extends NativeObject {
  public Mailbox() {
    super(Native.plait_mailbox_create(), Native::plait_mailbox_release);
  }

  /** The next tag, in the order they were posted; empty after {@code time} (null: no limit). A tag may be that of a closed request. */
  public OptionalLong poll(Duration time) {
    long[] tag = new long[1];
    return Waiting.until(time, timeout -> Native.plait_mailbox_next(this, timeout, tag)) ? OptionalLong.of(tag[0]) : OptionalLong.empty();
  }

  /** A tag of one's own: wakes the thread that waits. */
  public void post(long tag) {
    Native.plait_mailbox_post(this, tag);
  }
}

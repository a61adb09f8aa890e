using System;

namespace Plait {

/// <summary>One wait for many requests: each posts its tag when it has something to return (Request.Attach). Take its tokens with
/// Request.Next(0) until TIMEOUT or the end, then wait for the next tag. All calls at once.</summary>
public sealed class Mailbox : NativeObject {
  /// <summary>An empty one.</summary>
  public Mailbox() : base(Make(), null) {}

  internal override void Release(NativeObject number) {
    Native.plait_mailbox_release(number);
  }

  /// <summary>The next tag, in the order they were posted. Throws TIMEOUT if none came in time (negative: no limit). It may be that of a
  /// request that was disposed of.</summary>
  public long Next(long milliseconds = -1) {
    Native.plait_mailbox_next(this, milliseconds, out var tag);
    return tag;
  }

  /// <summary>A tag of one's own: wakes the thread that waits.</summary>
  public void Post(long tag) {
    Native.plait_mailbox_post(this, tag);
  }

  private static IntPtr Make() {
    Native.plait_mailbox_create(out var made);
    return made;
  }
}

}

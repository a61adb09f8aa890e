using System;

namespace Plait {

/// <summary>A call of the native library that failed: what went wrong, and what to change.</summary>
public sealed class PlaitException : Exception {
  internal PlaitException(Status status, string message, string hint)
      : base(message.Length == 0 ? Native.plait_status_name((int)status) : message) {
    Status = status;
    Hint = hint;
  }

  /// <summary>What kind of failure it is.</summary>
  public Status Status { get; }

  /// <summary>What to change, or "".</summary>
  public string Hint { get; }

  /// <summary>Throws what this thread's last call ended with, unless it went well.</summary>
  internal static void Check(int status) {
    if (status == (int)Status.OK) return;
    throw new PlaitException((Status)status, Native.plait_last_error(), Native.plait_last_hint());
  }
}

}

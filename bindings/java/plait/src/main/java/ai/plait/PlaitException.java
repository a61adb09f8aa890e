package ai.plait;

/** A call of the native library that failed: what went wrong, and what to change. */
public final class PlaitException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Status status;
  private final String hint;

  PlaitException(Status status, String message, String hint) {
    // A timeout is not a fault: it may happen many times a second, and needs no stack trace.
    super(message.isEmpty() ? status.name().toLowerCase(java.util.Locale.ROOT) : message, null, true, status != Status.TIMEOUT);
    this.status = status;
    this.hint = hint;
  }

  /** For the wrappers. */
  PlaitException(int status, byte[] message, byte[] hint) {
    this(Status.of(status), Utf8.text(message), Utf8.text(hint));
  }

  /** What kind of failure it is. */
  public Status status() {
    return status;
  }

  /** What to change, or "". */
  public String hint() {
    return hint;
  }

  @Override
  public String toString() {
    String text = "ai.plait.PlaitException: " + getMessage() + " [" + status + "]";
    return hint.isEmpty() ? text : text + " (" + hint + ")";
  }
}

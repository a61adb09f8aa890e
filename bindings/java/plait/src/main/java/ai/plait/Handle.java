package ai.plait;

/** The number of one native reference, as the JNI wrappers read it; an argument of a native call cannot be collected meanwhile. */
class Handle {
  private final long number;
  private volatile boolean closed;

  Handle(long number) {
    this.number = number;
  }

  final long number() {
    return number;
  }

  final boolean markClosed() {
    boolean before = closed;
    closed = true;
    return !before;
  }

  /** Whether it was closed; every use then throws a PlaitException of status CLOSED. */
  public final boolean isClosed() {
    return closed;
  }

  /** What the wrappers pass: null stays null, and a closed object is told. */
  static Handle open(Handle handle) {
    if (handle != null && handle.closed) {
      throw new PlaitException(Status.CLOSED, "the " + handle.getClass().getSimpleName() + " was closed before", "");
    }
    return handle;
  }

  static Handle[] open(Handle[] handles) {
    for (Handle handle : handles) open(handle);
    return handles;
  }
}

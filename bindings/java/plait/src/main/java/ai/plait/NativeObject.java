package ai.plait;

import java.lang.ref.Cleaner;
import java.util.function.Consumer;

/**
 * What stands for an object of the native library. Close it when it is no longer needed: in any order, as often as you like, from any
 * thread, also while it is in use. An object that is forgotten is released some time after it became unreachable.
 */
public abstract class NativeObject extends Handle implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  private final Cleaner.Cleanable release;
  /** For the objects that were made from this one, which hold it: native memory may be read when this is closed long since. */
  @SuppressWarnings("unused")
  private final Object[] kept;

  /** Releases by {@code release}; until that is done {@code kept} is not collected (what the native object reads). */
  NativeObject(long number, Consumer<Handle> release, Object... kept) {
    super(number);
    this.kept = kept;
    this.release = CLEANER.register(this, new Release(number, release, kept));
  }

  @Override
  public void close() {
    markClosed();
    release.clean();
  }

  private static final class Release implements Runnable {
    private final long number;
    private final Consumer<Handle> release;
    @SuppressWarnings("unused")
    private final Object[] kept;

    Release(long number, Consumer<Handle> release, Object[] kept) {
      this.number = number;
      this.release = release;
      this.kept = kept;
    }

    @Override
    public void run() {
      release.accept(new Handle(number));
    }
  }
}

package ai.plait;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * A typed array, row-major. Its memory is native: {@link #buffer} is that memory, and keeps it until the buffer is collected, also when
 * the tensor was closed. What is read once is better copied ({@link #floats} and the like): then closing gives the memory back at once.
 */
public final class Tensor extends NativeObject {
  private final Shared shared;

  Tensor(long number, Object... kept) {
    this(new Shared(number), kept);
  }

  private Tensor(Shared shared, Object[] kept) {
    super(shared.number, ignored -> shared.close(), kept);
    this.shared = shared;
  }

  /** A copy of what is left in {@code data}. */
  public static Tensor copyOf(DType dtype, long[] dims, ByteBuffer data) {
    return new Tensor(Native.plait_tensor_copy(dtype, dims, direct(data)));
  }

  /** What is left in the direct buffer {@code data}, without a copy: what is written there is in the tensor. */
  public static Tensor borrow(DType dtype, long[] dims, ByteBuffer data) {
    if (!data.isDirect()) throw new PlaitException(Status.INVALID_ARGUMENT, "the buffer is not direct", "use ByteBuffer.allocateDirect");
    return new Tensor(Native.plait_tensor_borrow(dtype, dims, data.slice()), data);
  }

  /** f32. */
  public static Tensor of(float[] values, long... dims) {
    ByteBuffer data = room(4L * values.length);
    data.asFloatBuffer().put(values);
    return borrow(DType.F32, dims, data);
  }

  /** i32. */
  public static Tensor of(int[] values, long... dims) {
    ByteBuffer data = room(4L * values.length);
    data.asIntBuffer().put(values);
    return borrow(DType.I32, dims, data);
  }

  /** i64. */
  public static Tensor of(long[] values, long... dims) {
    ByteBuffer data = room(8L * values.length);
    data.asLongBuffer().put(values);
    return borrow(DType.I64, dims, data);
  }

  /** Strings. */
  public static Tensor of(String[] values, long... dims) {
    byte[][] texts = new byte[values.length][];
    long bytes = 8L * values.length;
    for (int i = 0; i < values.length; i++) {
      texts[i] = values[i].getBytes(StandardCharsets.UTF_8);
      bytes += texts[i].length;
    }
    ByteBuffer data = room(bytes);
    long end = 0;
    for (byte[] text : texts) data.putLong(end += text.length);
    for (byte[] text : texts) data.put(text);
    data.flip();
    return borrow(DType.STRING, dims, data);
  }

  /** A sequence, or an optional (of at most one part), of tensors of one type, as an input of a session; the parts are copied. */
  public static Tensor list(DType dtype, Tensor... parts) {
    return new Tensor(Native.plait_tensor_list(dtype, parts));
  }

  /** The tensors of a list: an output that is a sequence or an optional. Each is to be closed. */
  public Tensor[] parts() {
    long[] count = new long[1];
    Native.plait_tensor_parts(this, count);
    Tensor[] out = new Tensor[length(count[0])];
    for (int i = 0; i < out.length; i++) out[i] = new Tensor(Native.plait_tensor_part(this, i));
    return out;
  }

  /** u8 [n]: a file of {@link Model#open(java.util.Map, Options)}, or a saved conversation. */
  public static Tensor of(byte[] values) {
    ByteBuffer data = room(values.length);
    data.duplicate().put(values);
    return borrow(DType.U8, new long[] {values.length}, data);
  }

  /** An array of NumPy's file {@code path} (.npy); {@code expected}: for elements that NumPy has no name for, otherwise NONE. */
  public static Tensor read(Path path, DType expected) {
    return new Tensor(Native.plait_tensor_read(path.toString(), expected));
  }

  /** Writes a file that NumPy reads (.npy). */
  public void write(Path path) {
    Native.plait_tensor_write(this, path.toString());
  }

  public DType dtype() {
    return view().getDtype();
  }

  public long[] dims() {
    return view().getDims();
  }

  public long elements() {
    return view().getElements();
  }

  public long bytes() {
    return view().getBytes();
  }

  /** All of its memory, which has to be below 2 GiB; in the machine's byte order. */
  public ByteBuffer buffer() {
    return buffer(0, bytes());
  }

  /** {@code bytes} bytes from {@code offset} on. */
  public ByteBuffer buffer(long offset, long bytes) {
    shared.hold(this);
    try {
      ByteBuffer buffer = memory(offset, bytes);
      CLEANER.register(buffer, shared::letGo);
      return buffer;
    } catch (RuntimeException error) {
      shared.letGo();
      throw error;
    }
  }

  /** A copy, of f32. */
  public float[] floats() {
    float[] out = new float[count(DType.F32)];
    read(memory -> memory.asFloatBuffer().get(out));
    return out;
  }

  /** A copy, of i32. */
  public int[] ints() {
    int[] out = new int[count(DType.I32)];
    read(memory -> memory.asIntBuffer().get(out));
    return out;
  }

  /** A copy, of i64. */
  public long[] longs() {
    long[] out = new long[count(DType.I64)];
    read(memory -> memory.asLongBuffer().get(out));
    return out;
  }

  /** A copy, of strings; bytes that are no UTF-8 are replaced. */
  public String[] strings() {
    String[] out = new String[count(DType.STRING)];
    read(memory -> {
      int begin = 8 * out.length;
      for (int i = 0; i < out.length; i++) {
        int end = 8 * out.length + Math.toIntExact(memory.getLong(8 * i));
        byte[] text = new byte[end - begin];
        memory.position(begin);
        memory.get(text);
        out[i] = new String(text, StandardCharsets.UTF_8);
        begin = end;
      }
    });
    return out;
  }

  /** A copy of the memory. */
  public byte[] toBytes() {
    byte[] out = new byte[length(bytes())];
    read(memory -> memory.get(out));
    return out;
  }

  /** The text of a text result. */
  public String text() {
    return Native.plait_tensor_text(this);
  }

  /** The text of a result that is nothing else. */
  static String textOf(long number) {
    try (Tensor tensor = new Tensor(number)) {
      return tensor.text();
    }
  }

  private View view() {
    View view = new View();
    Native.plait_tensor_view(this, view);
    return view;
  }

  private int count(DType dtype) {
    View view = view();
    if (view.getDtype() == dtype) return length(view.getElements());
    throw new PlaitException(Status.INVALID_ARGUMENT, "the tensor's elements are " + view.getDtype() + ", not " + dtype, "");
  }

  private static int length(long count) {
    if (count <= Integer.MAX_VALUE - 8) return (int) count;
    throw new PlaitException(Status.INVALID_ARGUMENT, "too large for an array: " + count + " elements", "take buffers");
  }

  /** All of the memory, valid while {@code use} runs, even if the tensor is closed meanwhile. */
  private void read(Consumer<ByteBuffer> use) {
    shared.hold(this);
    try {
      use.accept(memory(0, bytes()));
    } finally {
      shared.letGo();
    }
  }

  private ByteBuffer memory(long offset, long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      throw new PlaitException(Status.INVALID_ARGUMENT, "a buffer has at most 2 GiB, asked for " + bytes + " bytes", "take parts");
    }
    ByteBuffer out = bytes == 0 ? ByteBuffer.allocateDirect(0) : view().buffer(offset, bytes);
    return out.order(ByteOrder.nativeOrder());
  }

  private static ByteBuffer room(long bytes) {
    if (bytes > Integer.MAX_VALUE) throw new PlaitException(Status.INVALID_ARGUMENT, "a buffer has at most 2 GiB", "");
    return ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
  }

  static ByteBuffer direct(ByteBuffer data) {
    if (data == null || data.isDirect()) return data == null ? null : data.slice();
    ByteBuffer copy = room(data.remaining());
    copy.duplicate().put(data.duplicate());
    return copy;
  }

  /** The native reference, which the tensor and its buffers have in common: the last one releases it. */
  private static final class Shared {
    /** Bytes of closed tensors that buffers still hold: nothing on Java's heap shows them, so the collector has to be told. */
    private static final AtomicLong WAITING = new AtomicLong();
    private static final long MANY = 256L << 20;

    final long number;
    private final AtomicInteger holders = new AtomicInteger(1);
    private volatile long waiting;

    Shared(long number) {
      this.number = number;
    }

    /** Throws when it was released. */
    void hold(Tensor tensor) {
      Handle.open(tensor);
      if (holders.getAndUpdate(count -> count == 0 ? 0 : count + 1) != 0) return;
      tensor.markClosed();
      Handle.open(tensor);
    }

    void letGo() {
      if (holders.decrementAndGet() != 0) return;
      Native.plait_tensor_release(new Handle(number));
      WAITING.addAndGet(-waiting);
    }

    /** The tensor's own end. */
    void close() {
      if (holders.get() > 1) {
        View view = new View();
        Native.plait_tensor_view(new Handle(number), view);
        waiting = view.getBytes();
        if (WAITING.addAndGet(waiting) > MANY) System.gc();
      }
      letGo();
    }
  }
}

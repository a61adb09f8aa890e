using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Plait {

/// <summary>Looks at the memory of a tensor.</summary>
public delegate void SpanUser<T>(Span<T> elements);

/// <summary>A typed array, row-major, in native memory. <see cref="Use{T}"/> looks at that memory without a copy, and keeps it while it
/// does.</summary>
public sealed class Tensor : NativeObject {
  internal Tensor(IntPtr number, Pins pins = null) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_tensor_release(number);
  }

  /// <summary>A copy of <paramref name="elements"/>, which may be of any type of the right size.</summary>
  public static unsafe Tensor Copy<T>(DType dtype, long[] dims, ReadOnlySpan<T> elements) where T : struct {
    if (dims == null) throw new ArgumentNullException(nameof(dims));
    ReadOnlySpan<byte> bytes = MemoryMarshal.AsBytes(elements);
    fixed (byte* data = &MemoryMarshal.GetReference(bytes)) {
      Native.plait_tensor_copy(dtype, dims, dims.Length, (IntPtr)data, bytes.Length, out var made);
      return new Tensor(made);
    }
  }

  /// <summary>f32, i32, i64 and u8: a copy.</summary>
  public static Tensor Of(float[] values, params long[] dims) { return Copy<float>(DType.F32, dims, values); }
  /// <summary>i32.</summary>
  public static Tensor Of(int[] values, params long[] dims) { return Copy<int>(DType.I32, dims, values); }
  /// <summary>i64.</summary>
  public static Tensor Of(long[] values, params long[] dims) { return Copy<long>(DType.I64, dims, values); }
  /// <summary>Strings: a copy.</summary>
  public static Tensor Of(string[] values, params long[] dims) {
    var texts = new byte[values.Length][];
    long bytes = 8L * values.Length;
    for (int i = 0; i < values.Length; ++i) {
      texts[i] = Encoding.UTF8.GetBytes(values[i]);
      bytes += texts[i].Length;
    }
    var memory = new byte[bytes];
    int end = 0;
    for (int i = 0; i < texts.Length; ++i) {
      texts[i].CopyTo(memory, 8 * texts.Length + end);
      end += texts[i].Length;
      BitConverter.GetBytes((long)end).CopyTo(memory, 8 * i);
    }
    return Copy<byte>(DType.STRING, dims, memory);
  }

  /// <summary>A sequence, or an optional (of at most one part), of tensors of one type, as an input of a session; the parts are copied.
  /// </summary>
  public static Tensor List(DType dtype, params Tensor[] parts) {
    if (parts == null) throw new ArgumentNullException(nameof(parts));
    IntPtr[] numbers = Pin(parts);
    try {
      Native.plait_tensor_list(dtype, numbers, numbers.Length, out var made);
      return new Tensor(made);
    } finally {
      Unpin(parts, parts.Length);
    }
  }

  /// <summary>The tensors of a list: an output that is a sequence or an optional.</summary>
  public Tensor[] Parts() {
    Native.plait_tensor_parts(this, out var count);
    var parts = new Tensor[count];
    for (long i = 0; i < count; ++i) {
      Native.plait_tensor_part(this, i, out var part);
      parts[i] = new Tensor(part);
    }
    return parts;
  }

  /// <summary>u8 [n]: a file of Model.Open, or a saved conversation.</summary>
  public static Tensor Of(byte[] values) { return Copy<byte>(DType.U8, new long[] {values.Length}, values); }

  /// <summary>An array of NumPy's file <paramref name="path"/> (.npy); expected: for elements that NumPy has no name for.</summary>
  public static Tensor Read(string path, DType expected = DType.NONE) {
    Native.plait_tensor_read(Utf8.Name(path), expected, out var made);
    return new Tensor(made);
  }

  /// <summary>Writes a file that NumPy reads (.npy).</summary>
  public void Write(string path) { Native.plait_tensor_write(this, Utf8.Name(path)); }

  /// <summary>The array itself, pinned until the tensor and what was made from it are gone: what is written there is in the tensor.
  /// </summary>
  public static Tensor Borrow<T>(DType dtype, long[] dims, T[] elements) where T : struct {
    if (dims == null) throw new ArgumentNullException(nameof(dims));
    var pinned = new Pins(elements);
    pinned.Hold();
    try {
      Native.plait_tensor_borrow(dtype, dims, dims.Length, pinned.Address, MemoryMarshal.AsBytes<T>(elements).Length, out var made);
      return new Tensor(made, pinned);
    } finally {
      pinned.LetGo();
    }
  }

  /// <summary>The element type.</summary>
  public DType Dtype {
    get { return View().Dtype; }
  }

  /// <summary>The sizes.</summary>
  public long[] Dims {
    get { return View().Dims; }
  }

  /// <summary>How many elements.</summary>
  public long Elements {
    get { return View().Elements; }
  }

  /// <summary>How many bytes they take.</summary>
  public long Bytes {
    get { return View().Bytes; }
  }

  /// <summary>Runs <paramref name="user"/> on all elements where they are. Disposing of the tensor meanwhile waits.</summary>
  public unsafe void Use<T>(SpanUser<T> user) where T : struct {
    bool held = false;
    try {
      DangerousAddRef(ref held);
      View view = View();
      var bytes = new Span<byte>((void*)view.Data, checked((int)view.Bytes));
      user(MemoryMarshal.Cast<byte, T>(bytes));
    } finally {
      if (held) DangerousRelease();
    }
  }

  /// <summary>Copies all elements into memory of the host, in one piece.</summary>
  public unsafe void CopyTo<T>(Span<T> target) where T : struct {
    Span<byte> bytes = MemoryMarshal.AsBytes(target);
    bool held = false;
    try {
      DangerousAddRef(ref held);
      View view = View();
      if (bytes.Length < view.Bytes) {
        throw new PlaitException(Status.INVALID_ARGUMENT, $"the tensor has {view.Bytes} bytes, the target {bytes.Length}", "");
      }
      fixed (byte* to = &MemoryMarshal.GetReference(bytes)) Buffer.MemoryCopy((void*)view.Data, to, bytes.Length, view.Bytes);
    } finally {
      if (held) DangerousRelease();
    }
  }

  /// <summary>A copy, of f32.</summary>
  public float[] Floats() { return Array<float>(DType.F32); }
  /// <summary>A copy, of i32.</summary>
  public int[] Ints() { return Array<int>(DType.I32); }
  /// <summary>A copy, of i64.</summary>
  public long[] Longs() { return Array<long>(DType.I64); }
  /// <summary>A copy, of strings; bytes that are no UTF-8 are replaced.</summary>
  public string[] Strings() {
    byte[] memory = Array<byte>(DType.STRING);
    var texts = new string[Elements];
    int begin = 8 * texts.Length;
    for (int i = 0; i < texts.Length; ++i) {
      int end = checked(8 * texts.Length + (int)BitConverter.ToInt64(memory, 8 * i));
      texts[i] = Encoding.UTF8.GetString(memory, begin, end - begin);
      begin = end;
    }
    return texts;
  }
  /// <summary>A copy of the memory.</summary>
  public byte[] ToBytes() { return Array<byte>(null); }

  /// <summary>The text of a text result.</summary>
  public string Text() {
    bool held = false;
    try {
      DangerousAddRef(ref held);
      IntPtr text = Native.plait_tensor_text(this);
      View view = View();
      if (text == view.Data) return Utf8.Text(text, view.Bytes);
      throw new PlaitException(Status.INVALID_ARGUMENT, "the tensor is no text result", "");
    } finally {
      if (held) DangerousRelease();
    }
  }

  internal static string TextOf(IntPtr number) {
    using (var tensor = new Tensor(number)) return tensor.Text();
  }

  private View View() {
    var view = new View();
    Native.plait_tensor_view(this, view);
    return view;
  }

  private T[] Array<T>(DType? expected) where T : struct {
    View view = View();
    if (expected != null && view.Dtype != expected) {
      throw new PlaitException(Status.INVALID_ARGUMENT, $"the tensor's elements are {view.Dtype}, not {expected}", "");
    }
    var copy = new T[view.Bytes / Marshal.SizeOf(typeof(T))];
    CopyTo<T>(copy);
    return copy;
  }
}

}

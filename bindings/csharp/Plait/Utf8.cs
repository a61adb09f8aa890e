using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Plait {

/// <summary>Texts as the native library takes them.</summary>
internal static class Utf8 {
  private static readonly Encoding Strict = new UTF8Encoding(false, true);

  /// <summary>With a separate length: may contain NULs.</summary>
  internal static byte[] Bytes(string text) {
    if (text == null) throw new ArgumentNullException(nameof(text));
    try {
      // One more byte, for an array without elements would be passed as no text at all.
      var bytes = new byte[Strict.GetByteCount(text) + 1];
      Strict.GetBytes(text, 0, text.Length, bytes, 0);
      return bytes;
    } catch (EncoderFallbackException) {
      throw new PlaitException(Status.INVALID_ARGUMENT, "the text holds half of a surrogate pair", "");
    }
  }

  /// <summary>A name or path, which ends with a NUL.</summary>
  internal static byte[] Name(string text) {
    byte[] bytes = Bytes(text);
    if (Array.IndexOf(bytes, (byte)0) == bytes.Length - 1) return bytes;
    throw new PlaitException(Status.INVALID_ARGUMENT, "there is a NUL in the middle of a name or path", "");
  }

  /// <summary>Up to the first NUL.</summary>
  internal static unsafe string Text(IntPtr text) {
    long length = 0;
    for (byte* at = (byte*)text; at[length] != 0; ++length) {}
    return Text(text, length);
  }

  internal static unsafe string Text(IntPtr text, long length) {
    return length == 0 ? "" : Encoding.UTF8.GetString((byte*)text, checked((int)length));
  }

  /// <summary>Names for a call, which Free gives back.</summary>
  internal static IntPtr[] Names(string[] texts) {
    var names = new IntPtr[texts.Length];
    try {
      for (int i = 0; i < texts.Length; ++i) {
        byte[] bytes = Name(texts[i]);
        names[i] = Marshal.AllocHGlobal(bytes.Length);
        Marshal.Copy(bytes, 0, names[i], bytes.Length);
      }
      return names;
    } catch {
      Free(names);
      throw;
    }
  }

  internal static void Free(IntPtr[] names) {
    foreach (IntPtr name in names) Marshal.FreeHGlobal(name);
  }
}

}

package ai.plait;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Texts as the native library takes them. */
final class Utf8 {
  private Utf8() {}

  /** Null for null. Throws for half of a surrogate pair, which UTF-8 cannot encode. */
  static byte[] bytes(String text) {
    if (text == null) return null;
    boolean plain = true;
    for (int i = 0; plain && i < text.length(); ++i) plain = !Character.isSurrogate(text.charAt(i));
    if (plain) return text.getBytes(StandardCharsets.UTF_8);
    try {
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] out = new byte[encoded.remaining()];
      encoded.get(out);
      return out;
    } catch (CharacterCodingException error) {
      throw new PlaitException(Status.INVALID_ARGUMENT, "the text holds half of a surrogate pair", "");
    }
  }

  static byte[][] bytes(String[] texts) {
    byte[][] out = new byte[texts.length][];
    for (int i = 0; i < texts.length; ++i) out[i] = bytes(texts[i]);
    return out;
  }

  static String text(byte[] bytes) {
    return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
  }
}

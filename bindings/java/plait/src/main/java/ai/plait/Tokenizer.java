package ai.plait;

import java.nio.file.Path;

/** Text to tokens and back. Immutable: all calls at once. */
public final class Tokenizer extends NativeObject {
  Tokenizer(long number, Object... kept) {
    super(number, Native::plait_tokenizer_release, kept);
  }

  /** From a directory with a tokenizer.json. */
  public static Tokenizer open(Path directory, Options options) {
    return new Tokenizer(Native.plait_tokenizer_open(directory.toString(), options));
  }

  /** As a plain prompt, with what the tokenizer adds to one (BOS). */
  public int[] encode(String text) {
    return encode(text, true);
  }

  /** {@code special} false: for the result of {@link #chat}, which has it already. */
  public int[] encode(String text, boolean special) {
    try (Tensor ids = new Tensor(Native.plait_tokenizer_encode(this, text, special ? 1 : 0))) {
      return ids.ints();
    }
  }

  public String decode(int[] ids) {
    return decode(ids, true);
  }

  /** {@code skipSpecial}: without BOS, end of turn and the like. */
  public String decode(int[] ids, boolean skipSpecial) {
    return Tensor.textOf(Native.plait_tokenizer_decode(this, ids, skipSpecial ? 1 : 0));
  }

  /** The prompt for a conversation, a JSON list of messages, by the model's chat template. */
  public String chat(String messages, Options options) {
    return Tensor.textOf(Native.plait_tokenizer_chat(this, messages, options));
  }

  /** A token as the vocabulary spells it. */
  public String piece(int id) {
    return Tensor.textOf(Native.plait_tokenizer_piece(this, id));
  }

  /** The way back. */
  public int id(String piece) {
    int[] id = new int[1];
    Native.plait_tokenizer_id(this, piece, id);
    return id[0];
  }

  /** What a token adds within a text, which need not be whole characters; those of a special token are its name. */
  public byte[] bytes(int id) {
    try (Tensor bytes = new Tensor(Native.plait_tokenizer_bytes(this, id))) {
      return bytes.toBytes();
    }
  }

  /** Calls of encode, decode and chat that other threads have under way end with an error. */
  public void cancel() {
    Native.plait_tokenizer_cancel(this);
  }

  public TokenizerFacts facts() {
    TokenizerFacts out = new TokenizerFacts();
    Native.plait_tokenizer_info(this, out);
    return out;
  }
}

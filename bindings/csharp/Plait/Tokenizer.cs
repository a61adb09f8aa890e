using System;

namespace Plait {

/// <summary>Text to tokens and back. Immutable: all calls at once.</summary>
public sealed class Tokenizer : NativeObject {
  internal Tokenizer(IntPtr number, Pins pins) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_tokenizer_release(number);
  }

  /// <summary>From a directory with a tokenizer.json.</summary>
  public static Tokenizer Open(string directory, Options options = null) {
    Native.plait_tokenizer_open(Utf8.Name(directory), options, out var made);
    return new Tokenizer(made, null);
  }

  /// <summary><paramref name="special"/>: with what the tokenizer adds to a plain prompt (BOS).</summary>
  public int[] Encode(string text, bool special = true) {
    byte[] bytes = Utf8.Bytes(text);
    Native.plait_tokenizer_encode(this, bytes, bytes.Length - 1, special ? 1 : 0, out var ids);
    using (var tensor = new Tensor(ids)) return tensor.Ints();
  }

  /// <summary><paramref name="skipSpecial"/>: without BOS, end of turn and the like.</summary>
  public string Decode(int[] ids, bool skipSpecial = true) {
    Native.plait_tokenizer_decode(this, ids, ids.Length, skipSpecial ? 1 : 0, out var text);
    return Tensor.TextOf(text);
  }

  /// <summary>The prompt for a conversation, a JSON list of messages, by the model's chat template.</summary>
  public string Chat(string messages, Options options = null) {
    byte[] bytes = Utf8.Bytes(messages);
    Native.plait_tokenizer_chat(this, bytes, bytes.Length - 1, options, out var text);
    return Tensor.TextOf(text);
  }

  /// <summary>A token as the vocabulary spells it.</summary>
  public string Piece(int id) {
    Native.plait_tokenizer_piece(this, id, out var text);
    return Tensor.TextOf(text);
  }

  /// <summary>The way back.</summary>
  public int Id(string piece) {
    byte[] bytes = Utf8.Bytes(piece);
    Native.plait_tokenizer_id(this, bytes, bytes.Length - 1, out var id);
    return id;
  }

  /// <summary>What a token adds within a text, which need not be whole characters; those of a special token are its name.</summary>
  public byte[] Bytes(int id) {
    Native.plait_tokenizer_bytes(this, id, out var bytes);
    using (var tensor = new Tensor(bytes)) return tensor.ToBytes();
  }

  /// <summary>Calls of Encode, Decode and Chat that other threads have under way end with an error.</summary>
  public void Cancel() {
    Native.plait_tokenizer_cancel(this);
  }

  /// <summary>Its vocabulary and special tokens.</summary>
  public TokenizerFacts Facts() {
    var facts = new TokenizerFacts();
    Native.plait_tokenizer_info(this, facts);
    return facts;
  }
}

}

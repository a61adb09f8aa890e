using System;
using System.Collections;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

namespace Plait {

/// <summary>Chooses a token from logits, which are valid during the call.</summary>
public delegate int Sampler(ReadOnlySpan<float> logits);

/// <summary>What a request gives: a token and its text, the end of a sample, or logits that wait for the host's choice.</summary>
public sealed class Token {
  /// <summary>Which output, with the option "samples".</summary>
  public int Sample { get; internal set; }
  /// <summary>-1 for what is no token: the end of a sample, logits.</summary>
  public int Id { get; internal set; }
  /// <summary>What this adds to the output: whole characters, often "".</summary>
  public string Text { get; internal set; }
  /// <summary>Of the model's own distribution; NaN without the option "logprobs", and of the first token of a prompt.</summary>
  public float Logprob { get; internal set; }
  /// <summary>Its place in that distribution, 1: the most likely; 0 where Logprob is NaN.</summary>
  public int Rank { get; internal set; }
  /// <summary>Other than NONE: the last of its sample.</summary>
  public Finish Finish { get; internal set; }
  /// <summary>Which text of the option "stop", from 0, ended the sample; -1: none.</summary>
  public int Stop { get; internal set; }
  /// <summary>With the option "prompt_logprobs": one of the prompt's tokens, which come first.</summary>
  public bool IsPrompt { get; internal set; }
  /// <summary>The likeliest tokens, as many as the option "logprobs" asks for.</summary>
  public int[] TopIds { get; internal set; }
  /// <summary>In parallel to them.</summary>
  public float[] TopLogprobs { get; internal set; }
  /// <summary>With the option "host_sampling": one per token of the vocabulary, and Push must follow; otherwise null.</summary>
  public float[] Logits { get; internal set; }
}

/// <summary>A prompt that was submitted: pulls what is generated. All calls at once; threads that pull at once share the tokens out.
/// Disposing of it cancels it.</summary>
public sealed partial class Request : NativeObject, IEnumerable<Token> {
  private static readonly int[] NoIds = new int[0];
  private static readonly float[] NoLogprobs = new float[0];
  private Event spare;

  internal Request(IntPtr number, Pins pins) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_request_release(number);
  }

  /// <summary>Cancels first: a thread that waits for a token holds the request.</summary>
  protected override void Dispose(bool disposing) {
    if (disposing && !IsClosed) {
      try {
        Native.plait_request_cancel(this);
      } catch (PlaitException) {
        // Of one that was restored there is nothing to cancel.
      } catch (ObjectDisposedException) {
        // Another thread was faster.
      }
    }
    base.Dispose(disposing);
  }

  /// <summary>The host's own sampling, with the option "host_sampling". Runs in the thread that pulls.</summary>
  public Sampler Sampler { get; set; }

  /// <summary>The next token; null at the end. Throws TIMEOUT if none came in time (negative: no limit).</summary>
  public Token Next(long milliseconds = -1) {
    Event pulled = Interlocked.Exchange(ref spare, null) ?? new Event();
    try {
      for (;;) {
        Native.plait_request_next(this, milliseconds, pulled);
        EventKind kind = pulled.Kind;
        if (kind == EventKind.END) return null;
        Sampler choice = Sampler;
        if (kind != EventKind.LOGITS || choice == null) return TokenOf(pulled, kind);
        Push(choice(LogitsOf(pulled)));
      }
    } finally {
      spare = pulled;
    }
  }

  /// <summary>All tokens, as they come.</summary>
  public IEnumerator<Token> GetEnumerator() {
    for (Token token = Next(); token != null; token = Next()) yield return token;
  }

  IEnumerator IEnumerable.GetEnumerator() {
    return GetEnumerator();
  }

  /// <summary>All tokens, until <paramref name="cancellation"/> cancels the request.</summary>
  public IEnumerable<Token> Tokens(CancellationToken cancellation) {
    using (cancellation.Register(Cancel)) {
      foreach (Token token in this) {
        cancellation.ThrowIfCancellationRequested();
        yield return token;
      }
    }
    cancellation.ThrowIfCancellationRequested();
  }

  /// <summary>All of sample 0's text; waits for the end.</summary>
  public string Text() {
    var text = new StringBuilder();
    foreach (Token token in this) {
      if (token.Sample == 0) text.Append(token.Text);
    }
    return text.ToString();
  }

  /// <summary>From now on the tag is posted to the mailbox (null: none) when there is something to pull, and again after a pull timed out.
  /// </summary>
  public void Attach(Mailbox mailbox, long tag) {
    Native.plait_request_attach(this, mailbox, tag);
  }

  /// <summary>With the option "host_sampling": the token that follows the logits pulled last.</summary>
  public void Push(int token) {
    Native.plait_request_push(this, token);
  }

  /// <summary>Ends it soon: its samples finish with CANCELLED.</summary>
  public void Cancel() {
    Native.plait_request_cancel(this);
  }

  /// <summary>Tokens and times.</summary>
  public Usage Usage() {
    var usage = new Usage();
    Native.plait_request_usage(this, usage);
    return usage;
  }

  /// <summary>Of the kinds "score" (logits [s, v]) and "embed" (hidden states [s, h], or [h] with "pooling"); waits for the end.
  /// </summary>
  public Tensor Result() {
    Native.plait_request_result(this, out var made);
    return new Tensor(made);
  }

  /// <summary>The kept conversation, for Generator.Restore.</summary>
  public byte[] Save() {
    Native.plait_request_save(this, out var bytes);
    using (var tensor = new Tensor(bytes)) return tensor.ToBytes();
  }

  private static Token TokenOf(Event pulled, EventKind kind) {
    int top = pulled.TopCount;
    var token = new Token {
      Sample = pulled.Sample,
      Id = pulled.Token,
      Text = Utf8.Text(pulled.Text, pulled.TextLength),
      Logprob = pulled.Logprob,
      Finish = pulled.Finish,
      Stop = pulled.Stop,
      Rank = pulled.Rank,
      IsPrompt = kind == EventKind.PROMPT,
      TopIds = top == 0 ? NoIds : new int[top],
      TopLogprobs = top == 0 ? NoLogprobs : new float[top],
      Logits = kind == EventKind.LOGITS ? LogitsOf(pulled).ToArray() : null,
    };
    if (top > 0) {
      Marshal.Copy(pulled.TopTokens, token.TopIds, 0, top);
      Marshal.Copy(pulled.TopLogprobs, token.TopLogprobs, 0, top);
    }
    GC.KeepAlive(pulled);
    return token;
  }

  private static unsafe ReadOnlySpan<float> LogitsOf(Event pulled) {
    return new ReadOnlySpan<float>((void*)pulled.Logits, checked((int)pulled.LogitsCount));
  }
}

}

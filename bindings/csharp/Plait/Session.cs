using System;
using System.Collections.Generic;
using System.Linq;

namespace Plait {

/// <summary>Any ONNX model as written: tensors in, tensors out. Thread-safe; runs are queued.</summary>
public sealed class Session : NativeObject {
  internal Session(IntPtr number, Pins pins) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_session_release(number);
  }

  /// <summary>Name, element type and sizes of each input.</summary>
  public IReadOnlyList<Operand> Inputs {
    get {
      Native.plait_session_count(this, out var inputs, out var outputs);
      var operands = new List<Operand>();
      for (long i = 0; i < inputs; ++i) {
        var operand = new Operand();
        Native.plait_session_input(this, i, operand);
        operands.Add(operand);
      }
      return operands;
    }
  }

  /// <summary>The same of the outputs.</summary>
  public IReadOnlyList<Operand> Outputs {
    get {
      Native.plait_session_count(this, out var inputs, out var outputs);
      var operands = new List<Operand>();
      for (long i = 0; i < outputs; ++i) {
        var operand = new Operand();
        Native.plait_session_output(this, i, operand);
        operands.Add(operand);
      }
      return operands;
    }
  }

  /// <summary>Runs it, each input once; gives the outputs of those names.</summary>
  public Dictionary<string, Tensor> Run(IReadOnlyDictionary<string, Tensor> inputs, params string[] outputs) {
    var made = new IntPtr[outputs.Length];
    IntPtr[] wanted = Utf8.Names(outputs);
    try {
      With(inputs, (names, numbers) => Native.plait_session_run(this, names, numbers, numbers.Length, wanted, made, made.Length));
    } finally {
      Utf8.Free(wanted);
    }
    var results = new Dictionary<string, Tensor>();
    for (int i = 0; i < made.Length; ++i) results[outputs[i]] = new Tensor(made[i]);
    return results;
  }

  /// <summary>The run under way ends with CANCELLED.</summary>
  public void Cancel() {
    Native.plait_session_cancel(this);
  }

  /// <summary>With the option "trace": what was done when, for Chrome's trace viewer.</summary>
  public string Trace() {
    Native.plait_session_trace(this, out var json);
    return Tensor.TextOf(json);
  }
}

}

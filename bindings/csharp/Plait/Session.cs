using System;
using System.Collections.Generic;
using System.Linq;

namespace Plait {

/// <summary>Any ONNX model: tensors in, tensors out, as the file says. All calls at once; runs queue up.</summary>
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
    IntPtr[] names = Utf8.Names(inputs.Keys.ToArray()), wanted = null, numbers = null;
    NativeObject[] values = inputs.Values.ToArray<NativeObject>();
    try {
      wanted = Utf8.Names(outputs);
      numbers = Pin(values);
      var made = new IntPtr[outputs.Length];
      Native.plait_session_run(this, names, numbers, numbers.Length, wanted, made, made.Length);
      var results = new Dictionary<string, Tensor>();
      for (int i = 0; i < made.Length; ++i) results[outputs[i]] = new Tensor(made[i]);
      return results;
    } finally {
      if (numbers != null) Unpin(values, values.Length);
      if (wanted != null) Utf8.Free(wanted);
      Utf8.Free(names);
    }
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

package ai.plait;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Any ONNX model as written: tensors in, tensors out. Thread-safe; runs are queued. */
public final class Session extends NativeObject {
  Session(long number, Object... kept) {
    super(number, Native::plait_session_release, kept);
  }

  /** Name, element type and sizes of each input. */
  public List<Operand> inputs() {
    List<Operand> out = new ArrayList<>();
    for (long i = 0; i < counts()[0]; ++i) {
      Operand operand = new Operand();
      Native.plait_session_input(this, i, operand);
      out.add(operand);
    }
    return out;
  }

  public List<Operand> outputs() {
    List<Operand> out = new ArrayList<>();
    for (long i = 0; i < counts()[1]; ++i) {
      Operand operand = new Operand();
      Native.plait_session_output(this, i, operand);
      out.add(operand);
    }
    return out;
  }

  /** Runs it, each input once; gives the outputs of those names. */
  public Map<String, Tensor> run(Map<String, Tensor> inputs, String... outputs) {
    String[] names = inputs.keySet().toArray(new String[0]);
    long[] numbers = new long[outputs.length];
    Native.plait_session_run(this, names, inputs.values().toArray(new Tensor[0]), outputs, numbers);
    Map<String, Tensor> results = new LinkedHashMap<>();
    for (int i = 0; i < numbers.length; ++i) results.put(outputs[i], new Tensor(numbers[i]));
    return results;
  }

  /** The run under way ends with CANCELLED. */
  public void cancel() {
    Native.plait_session_cancel(this);
  }

  /** With the option "trace": what was done when, for Chrome's trace viewer. */
  public String trace() {
    return Tensor.textOf(Native.plait_session_trace(this));
  }

  private long[] counts() {
    long[] inputs = new long[1];
    long[] outputs = new long[1];
    Native.plait_session_count(this, inputs, outputs);
    return new long[] {inputs[0], outputs[0]};
  }
}

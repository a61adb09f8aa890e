import ai.plait.*;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Any graph, tensors in, tensors out: an encoder's states of a row of tokens. Inputs are i64 [1, s]: tokens for the first, ones for
 * a mask, zeros for what else there is. Usage: MODEL.onnx OUTPUT TOKEN...
 */
class SessionTensors {
  public static void main(String[] words) {
    long[] tokens = Arrays.stream(words).skip(2).mapToLong(Long::parseLong).toArray();
    try (Model model = Model.open(Path.of(words[0])); Session session = model.session(null)) {
      Map<String, Tensor> inputs = new LinkedHashMap<>();
      for (Operand operand : session.inputs()) {
        long[] values = new long[tokens.length];
        if (operand.getName().contains("mask")) Arrays.fill(values, 1);
        inputs.put(operand.getName(), Tensor.of(inputs.isEmpty() ? tokens : values, 1, tokens.length));
      }
      try (Tensor result = session.run(inputs, words[1]).get(words[1])) {
        for (long size : result.dims()) System.out.print(size + " ");
        System.out.printf(java.util.Locale.ROOT, "%.3f%n", result.buffer().getFloat(0));
      }
    }
  }
}

import ai.plait.*;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** A model whose files are in memory, from wherever they come: here they are read. Usage: MODEL_DIRECTORY PROMPT */
class Memory {
  public static void main(String[] words) throws IOException {
    Map<String, Tensor> files = new LinkedHashMap<>();
    for (String name : new String[] {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"}) {
      files.put(name, Tensor.of(Files.readAllBytes(Path.of(words[0], name))));
    }
    try (Model model = Model.open(files, null);
        Generator generator = model.generator(null);
        Request request = generator.submit(words[1], new Options().maxTokens(16).temperature(0))) {
      System.out.println(request.text());
    }
  }
}

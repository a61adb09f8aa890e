import ai.plait.*;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Several prompts at once: they share the steps. Usage: MODEL_DIRECTORY PROMPT... */
class Batch {
  public static void main(String[] words) {
    try (Model model = Model.open(Path.of(words[0])); Generator generator = model.generator(null)) {
      Options options = new Options().maxTokens(16).temperature(0);
      List<Request> requests = new ArrayList<>();
      for (int i = 1; i < words.length; ++i) requests.add(generator.submit(words[i], options));
      for (Request request : requests) {
        System.out.println(request.text());
        request.close();
      }
    }
  }
}

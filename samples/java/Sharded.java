import ai.plait.*;
import java.nio.file.Path;

/** A model that is spread over ranks, which are threads of this process. Usage: MODEL_DIRECTORY MESH PROMPT, with a mesh as tensor=2 */
class Sharded {
  public static void main(String[] words) {
    try (Model model = Model.open(Path.of(words[0]));
        Generator generator = model.generator(new Options().mesh(words[1]));
        Request request = generator.submit(words[2], new Options().maxTokens(16).temperature(0))) {
      System.out.println(request.text());
      System.err.println(generator.ranks());
    }
  }
}

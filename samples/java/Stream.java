import ai.plait.*;
import java.nio.file.Path;

/** The smallest program that generates text: java -cp plait-0.1.0.jar Stream.java MODEL_DIRECTORY PROMPT */
class Stream {
  public static void main(String[] words) {
    try (Model model = Model.open(Path.of(words[0]));
        Generator generator = model.generator(null);
        Request request = generator.submit(words[1], new Options().maxTokens(64))) {
      request.texts().forEach(System.out::print);
      System.out.println();
    }
  }
}

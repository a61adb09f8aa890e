import ai.plait.*;
import java.nio.file.Path;

/** How near texts are to each other, by their mean hidden states. Usage: MODEL_DIRECTORY TEXT OTHER_TEXT */
class Embeddings {
  public static void main(String[] words) {
    try (Model model = Model.open(Path.of(words[0])); Generator generator = model.generator(null)) {
      float[] one = embedding(generator, words[1]);
      float[] two = embedding(generator, words[2]);
      double dot = 0;
      double first = 0;
      double second = 0;
      for (int i = 0; i < one.length; ++i) {
        dot += (double) one[i] * two[i];
        first += (double) one[i] * one[i];
        second += (double) two[i] * two[i];
      }
      System.out.printf(java.util.Locale.ROOT, "%.3f%n", dot / Math.sqrt(first * second));
    }
  }

  private static float[] embedding(Generator generator, String text) {
    try (Request request = generator.submit(text, new Options().kind("embed").pooling("mean")); Tensor result = request.result()) {
      return result.floats();
    }
  }
}

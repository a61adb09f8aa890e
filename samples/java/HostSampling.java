import ai.plait.*;
import java.nio.FloatBuffer;
import java.nio.file.Path;

/** The program chooses the tokens itself, here the likeliest one that is even. Usage: MODEL_DIRECTORY PROMPT */
class HostSampling {
  public static void main(String[] words) {
    try (Model model = Model.open(Path.of(words[0]));
        Generator generator = model.generator(null);
        Request request = generator.submit(words[1], new Options().hostSampling(true).maxTokens(16))) {
      System.out.println(request.sampler(HostSampling::choose).text());
    }
  }

  private static int choose(FloatBuffer logits) {
    int best = 0;
    for (int token = 2; token < logits.remaining(); token += 2) if (logits.get(token) > logits.get(best)) best = token;
    return best;
  }
}

import ai.plait.*;
import java.nio.file.Path;

/** Three steps of training on one text, whose loss falls. Usage: MODEL_DIRECTORY TEXT */
class ThreeSteps {
  public static void main(String[] words) {
    Options options = new Options().set("optimizer", "sgd").set("lr", 0.5).set("schedule", "constant");
    try (Model model = Model.open(Path.of(words[0])); Trainer trainer = model.trainer(options)) {
      int[] ids = model.tokenizer().encode(words[1]);
      try (Tensor document = Tensor.of(ids, 1, ids.length)) {
        for (int i = 0; i < 3; ++i) System.out.printf(java.util.Locale.ROOT, "%.3f%n", trainer.step(document, null).getLoss());
      }
    }
  }
}

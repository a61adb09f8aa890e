import ai.plait.*;
import java.nio.file.Path;
import java.util.Locale;

/**
 * Fine-tuning over ranks, which are threads of this process: with data=2,pipeline=2,tensor=2 eight, two copies for the data, each of
 * two pipeline stages of two tensor parallel ranks. Usage: MODEL_DIRECTORY MESH SCHEDULE, with a schedule as 1f1b
 */
class Pipeline {
  public static void main(String[] words) {
    Options options = new Options().mesh(words[1]).set("pipeline", words[2]).set("micro_batches", 4).set("zero", 1).threads(1)
        .set("lr", 1e-3).set("seq", 8).set("micro_batch", 8).set("batch", 8);
    int[] ids = new int[8 * 8]; // each document counts up from an id of its own
    for (int i = 0; i < ids.length; ++i) ids[i] = 5 + 3 * (i / 8) + i % 8;
    try (Model model = Model.open(Path.of(words[0])); Trainer trainer = model.trainer(options); Tensor batch = Tensor.of(ids, 8, 8)) {
      for (int i = 0; i < 3; ++i) {
        TrainingStep step = trainer.step(batch, null); // the labels are the next ids
        System.out.println(String.format(Locale.ROOT, "step %d: loss %.3f", step.getStep(), step.getLoss()));
      }
    }
  }
}

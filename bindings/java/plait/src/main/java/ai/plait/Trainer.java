package ai.plait;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;

/**
 * Trains a model, or adapters of it. With the option "data" it goes through that file by itself and the steps are pulled; without, the
 * host gives every step. All calls at once. Closing it cancels it.
 */
public final class Trainer extends NativeObject implements Iterator<TrainingStep> {
  private TrainingStep ahead;
  private boolean ended;

  Trainer(long number, Object... kept) {
    super(number, Native::plait_trainer_release, kept);
  }

  /** Waits until it is loaded. False on timeout; null: no limit. */
  public boolean await(Duration time) {
    return Waiting.until(time, slice -> Native.plait_trainer_wait(this, slice));
  }

  /** How much of the loading is done, 0 to 1. */
  public double progress() {
    double[] fraction = new double[1];
    Native.plait_trainer_progress(this, fraction);
    return fraction[0];
  }

  /** Ends the loading, or the run; what is done is saved. */
  public void cancel() {
    Native.plait_trainer_cancel(this);
  }

  /** The next report of the run, the last of which has an ending; null if none came in time (a time of null: no limit). */
  public TrainingStep poll(Duration time) {
    TrainingStep step = new TrainingStep();
    return Waiting.until(time, slice -> Native.plait_trainer_next(this, slice, step)) ? step : null;
  }

  @Override
  public synchronized boolean hasNext() {
    if (ahead == null && !ended) {
      ahead = poll(null);
      ended = ahead.getEnding() != Ending.NONE;
    }
    return ahead != null;
  }

  @Override
  public synchronized TrainingStep next() {
    if (!hasNext()) throw new NoSuchElementException("the run has ended");
    TrainingStep out = ahead;
    ahead = null;
    return out;
  }

  /**
   * A step of the host's own: forward, backward, update. {@code ids}: i32 or i64 [documents, s]; {@code labels} alike, -1 where nothing
   * counts, or null: the next ids.
   */
  public TrainingStep step(Tensor ids, Tensor labels) {
    TrainingStep out = new TrainingStep();
    Native.plait_trainer_step(this, ids, labels, out);
    return out;
  }

  /** A step of a model with a loss of its own (option "loss"): its inputs, each once. */
  public TrainingStep step(Map<String, Tensor> inputs) {
    TrainingStep out = new TrainingStep();
    Native.plait_trainer_step_inputs(this, inputs.keySet().toArray(new String[0]), inputs.values().toArray(new Tensor[0]), out);
    return out;
  }

  /** For a loss of the host's own: logits, f32 [documents, s, v]. */
  public Tensor forward(Tensor ids) {
    return new Tensor(Native.plait_trainer_forward(this, ids));
  }

  /** The gradient of that loss by the logits. */
  public void backward(Tensor ids, Tensor gradient) {
    Native.plait_trainer_backward(this, ids, gradient);
  }

  /** The update, by what was gathered since the last one. */
  public TrainingStep update() {
    TrainingStep out = new TrainingStep();
    Native.plait_trainer_update(this, out);
    return out;
  }

  /** The loss over a file like "data". */
  public Evaluation evaluate(Path data) {
    Evaluation out = new Evaluation();
    Native.plait_trainer_evaluate(this, data.toString(), out);
    return out;
  }

  /** The same over documents like those of {@link #step}. */
  public Evaluation evaluate(Tensor ids, Tensor labels) {
    Evaluation out = new Evaluation();
    Native.plait_trainer_evaluate_ids(this, ids, labels, out);
    return out;
  }

  /** The loss of a model with one of its own. */
  public Evaluation evaluate(Map<String, Tensor> inputs) {
    Evaluation out = new Evaluation();
    Native.plait_trainer_evaluate_inputs(this, inputs.keySet().toArray(new String[0]), inputs.values().toArray(new Tensor[0]), out);
    return out;
  }

  /** A checkpoint in "out". */
  public void save() {
    Native.plait_trainer_save(this);
  }

  /** The model with what was trained, as ONNX. */
  public void export(Path directory) {
    Native.plait_trainer_export(this, directory.toString());
  }

  /** Writes the adapters in PEFT's layout. */
  public void saveAdapter(Path directory) {
    Native.plait_trainer_save_adapter(this, directory.toString());
  }
}

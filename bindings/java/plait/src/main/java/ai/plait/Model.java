package ai.plait;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

/** A model's graph, with its tokenizer and configurations. Immutable: all calls at once. */
public final class Model extends NativeObject {
  private Model(long number, Object... kept) {
    super(number, Native::plait_model_release, kept);
  }

  /** A directory, or an .onnx file whose directory then gives the rest. */
  public static Model open(Path path) {
    return open(path, null);
  }

  /** {@code options} may be null, here and elsewhere. */
  public static Model open(Path path, Options options) {
    return new Model(Native.plait_model_open(path.toString(), options));
  }

  /** From memory: files by the names that they would have in a directory, each a tensor of bytes, which is not copied. */
  public static Model open(Map<String, Tensor> files, Options options) {
    String[] names = new String[files.size()];
    Tensor[] contents = new Tensor[files.size()];
    int i = 0;
    for (Map.Entry<String, Tensor> file : files.entrySet()) {
      names[i] = file.getKey();
      contents[i++] = file.getValue();
    }
    return new Model(Native.plait_model_open_memory(names, contents, options), (Object) contents);
  }

  /** Waits for what a model that was opened with the option "background" still loads. False when the time is over. */
  public boolean await(Duration time) {
    return Waiting.until(time, slice -> Native.plait_model_wait(this, slice));
  }

  /** How much of that is done, 0 to 1. */
  public double progress() {
    double[] fraction = new double[1];
    Native.plait_model_progress(this, fraction);
    return fraction[0];
  }

  /** Ends that. */
  public void cancel() {
    Native.plait_model_cancel(this);
  }

  /** What the graph is and what was recognised in it, as JSON. */
  public String info() {
    return Tensor.textOf(Native.plait_model_info(this));
  }

  /** The graph's text form after the pass of that name. */
  public String dump(String pass) {
    return Tensor.textOf(Native.plait_model_dump(this, pass));
  }

  /** What every rank of a mesh would do, as JSON. */
  public String plan(Options options) {
    return Tensor.textOf(Native.plait_model_plan(this, options));
  }

  /** What a trainer with these options would hold and do, as JSON; nothing is loaded. */
  public String planTraining(Options options) {
    return Tensor.textOf(Native.plait_model_plan_training(this, options));
  }

  /** The fastest plan of a training run or of generation on a machine, by simulation, as JSON; nothing is loaded. */
  public String bestPlan(Options options) {
    return Tensor.textOf(Native.plait_model_best_plan(this, options));
  }

  /** Writes the model as ONNX. */
  public void export(Path directory, Options options) {
    Native.plait_model_export(this, directory.toString(), options);
  }

  /** The next log line of the model, its generators and sessions; null if there is none. */
  public LogLine nextLogLine() {
    int[] level = new int[1];
    long text = Native.plait_log_next(this, level);
    return text == 0 ? null : new LogLine(LogLevel.of(level[0]), Tensor.textOf(text));
  }

  /** The model's own; waits while it loads. */
  public Tokenizer tokenizer() {
    return new Tokenizer(Native.plait_tokenizer_of_model(this), this);
  }

  /** Starts to load the weights and returns; what is asked of the generator waits for that. */
  public Generator generator(Options options) {
    return new Generator(Native.plait_generator_create(this, options), this);
  }

  /** On the processes of a world, of which this is rank 0. */
  public Generator generator(World world, Options options) {
    return new Generator(Native.plait_generator_create_on(world, this, options), this, world);
  }

  /** For tensors in, tensors out. */
  public Session session(Options options) {
    return new Session(Native.plait_session_create(this, options), this);
  }

  /** Creates a trainer; see the options for what is trained, the data, and the output directory. */
  public Trainer trainer(Options options) {
    return new Trainer(Native.plait_trainer_create(this, options), this);
  }

  /** On the processes of a world, of which this is rank 0. */
  public Trainer trainer(World world, Options options) {
    return new Trainer(Native.plait_trainer_create_on(world, this, options), this, world);
  }
}

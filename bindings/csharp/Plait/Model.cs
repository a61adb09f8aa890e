using System;
using System.Collections.Generic;
using System.Linq;

namespace Plait {

/// <summary>A log line of the library.</summary>
public sealed class LogLine {
  internal LogLine(LogLevel level, string text) {
    Level = level;
    Text = text;
  }

  /// <summary>How serious it is.</summary>
  public LogLevel Level { get; }
  /// <summary>The line.</summary>
  public string Text { get; }
}

/// <summary>A model's graph, with its tokenizer and configurations. Immutable: all calls at once.</summary>
public sealed class Model : NativeObject {
  private Model(IntPtr number, Pins pins) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_model_release(number);
  }

  /// <summary>A directory, or an .onnx file whose directory then gives the rest.</summary>
  public static Model Open(string path, Options options = null) {
    Native.plait_model_open(Utf8.Name(path), options, out var made);
    return new Model(made, null);
  }

  /// <summary>From memory: files by the names that they would have in a directory, each a tensor of bytes, which is not copied.
  /// </summary>
  public static Model Open(IReadOnlyDictionary<string, Tensor> files, Options options = null) {
    IntPtr[] names = Utf8.Names(files.Keys.ToArray());
    NativeObject[] contents = files.Values.ToArray<NativeObject>();
    IntPtr[] numbers = null;
    try {
      numbers = Pin(contents);
      Native.plait_model_open_memory(names, numbers, numbers.Length, options, out var made);
      return new Model(made, new Pins(files.Values.Select(file => file?.Pins).ToArray()));
    } finally {
      if (numbers != null) Unpin(contents, contents.Length);
      Utf8.Free(names);
    }
  }

  /// <summary>Waits for what a model that was opened with the option "background" still loads. Throws TIMEOUT.</summary>
  public void Wait(long milliseconds = -1) {
    Native.plait_model_wait(this, milliseconds);
  }

  /// <summary>How much of that is done, 0 to 1.</summary>
  public double Progress {
    get {
      Native.plait_model_progress(this, out var fraction);
      return fraction;
    }
  }

  /// <summary>Ends that.</summary>
  public void Cancel() {
    Native.plait_model_cancel(this);
  }

  /// <summary>What the graph is and what was recognised in it, as JSON.</summary>
  public string Info() {
    Native.plait_model_info(this, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>The graph's text form after the pass of that name.</summary>
  public string Dump(string pass) {
    Native.plait_model_dump(this, Utf8.Name(pass), out var text);
    return Tensor.TextOf(text);
  }

  /// <summary>What every rank of a mesh would do, as JSON.</summary>
  public string Plan(Options options) {
    Native.plait_model_plan(this, options, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>What a trainer with these options would hold and do, as JSON; nothing is loaded.</summary>
  public string PlanTraining(Options options = null) {
    Native.plait_model_plan_training(this, options, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>The fastest plan of a training run or of generation on a machine, by simulation, as JSON; nothing is loaded.</summary>
  public string BestPlan(Options options) {
    Native.plait_model_best_plan(this, options, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>Writes the model as ONNX.</summary>
  public void Export(string directory, Options options = null) {
    Native.plait_model_export(this, Utf8.Name(directory), options);
  }

  /// <summary>The next log line of the model, its generators and sessions; null if there is none.</summary>
  public LogLine NextLogLine() {
    Native.plait_log_next(this, out var level, out var text);
    return text == IntPtr.Zero ? null : new LogLine((LogLevel)level, Tensor.TextOf(text));
  }

  /// <summary>The model's own; waits while it loads.</summary>
  public Tokenizer Tokenizer() {
    Native.plait_tokenizer_of_model(this, out var made);
    return new Tokenizer(made, Pins);
  }

  /// <summary>Starts to load the weights and returns; what is asked of the generator waits for that.</summary>
  public Generator Generator(Options options = null) {
    Native.plait_generator_create(this, options, out var made);
    return new Generator(made, Pins);
  }

  /// <summary>On the processes of a world, of which this is rank 0.</summary>
  public Generator Generator(World world, Options options) {
    Native.plait_generator_create_on(world, this, options, out var made);
    return new Generator(made, Pins);
  }

  /// <summary>For tensors in, tensors out.</summary>
  public Session Session(Options options = null) {
    Native.plait_session_create(this, options, out var made);
    return new Session(made, Pins);
  }

  /// <summary>Creates a trainer; see the options for what is trained, the data, and the output directory.</summary>
  public Trainer Trainer(Options options = null) {
    Native.plait_trainer_create(this, options, out var made);
    return new Trainer(made, Pins);
  }

  /// <summary>On the processes of a world, of which this is rank 0.</summary>
  public Trainer Trainer(World world, Options options) {
    Native.plait_trainer_create_on(world, this, options, out var made);
    return new Trainer(made, Pins);
  }
}

}

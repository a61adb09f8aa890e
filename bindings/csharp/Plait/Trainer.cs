using System;
using System.Collections;
using System.Collections.Generic;

namespace Plait {

/// <summary>Trains a model, or adapters of it. With the option "data" it goes through that file by itself and the steps are pulled;
/// without, the host gives every step. All calls at once. Disposing of it cancels it.</summary>
public sealed class Trainer : NativeObject, IEnumerable<TrainingStep> {
  internal Trainer(IntPtr number, Pins pins) : base(number, pins) {}

  internal override void Release(NativeObject number) {
    Native.plait_trainer_release(number);
  }

  /// <summary>Cancels first: a thread that waits for a step holds the trainer.</summary>
  protected override void Dispose(bool disposing) {
    if (disposing && !IsClosed) {
      try {
        Cancel();
      } catch (ObjectDisposedException) {
        // Another thread was faster.
      }
    }
    base.Dispose(disposing);
  }

  /// <summary>Waits until it is loaded. Throws TIMEOUT.</summary>
  public void Wait(long milliseconds = -1) {
    Native.plait_trainer_wait(this, milliseconds);
  }

  /// <summary>How much of the loading is done, 0 to 1.</summary>
  public double Progress {
    get {
      Native.plait_trainer_progress(this, out var fraction);
      return fraction;
    }
  }

  /// <summary>Ends the loading, or the run; what is done is saved.</summary>
  public void Cancel() {
    Native.plait_trainer_cancel(this);
  }

  /// <summary>The next report of the run, the last of which has an ending. Throws TIMEOUT.</summary>
  public TrainingStep Next(long milliseconds = -1) {
    var step = new TrainingStep();
    Native.plait_trainer_next(this, milliseconds, step);
    return step;
  }

  /// <summary>All reports of the run.</summary>
  public IEnumerator<TrainingStep> GetEnumerator() {
    for (;;) {
      TrainingStep step = Next();
      yield return step;
      if (step.Ending != Ending.NONE) yield break;
    }
  }

  IEnumerator IEnumerable.GetEnumerator() {
    return GetEnumerator();
  }

  /// <summary>A step of the host's own: forward, backward, update. <paramref name="ids"/>: i32 or i64 [documents, s];
  /// <paramref name="labels"/> alike, -1 if not counted, or null: the next ids.</summary>
  public TrainingStep Step(Tensor ids, Tensor labels = null) {
    var step = new TrainingStep();
    Native.plait_trainer_step(this, ids, labels, step);
    return step;
  }

  /// <summary>A step of a model with a loss of its own (option "loss"): its inputs, each once.</summary>
  public TrainingStep Step(IReadOnlyDictionary<string, Tensor> inputs) {
    var step = new TrainingStep();
    With(inputs, (names, numbers) => Native.plait_trainer_step_inputs(this, names, numbers, numbers.Length, step));
    return step;
  }

  /// <summary>For a loss of the host's own: logits, f32 [documents, s, v].</summary>
  public Tensor Forward(Tensor ids) {
    Native.plait_trainer_forward(this, ids, out var logits);
    return new Tensor(logits);
  }

  /// <summary>The gradient of that loss by the logits.</summary>
  public void Backward(Tensor ids, Tensor gradient) {
    Native.plait_trainer_backward(this, ids, gradient);
  }

  /// <summary>The update, by what was gathered since the last one.</summary>
  public TrainingStep Update() {
    var step = new TrainingStep();
    Native.plait_trainer_update(this, step);
    return step;
  }

  /// <summary>The loss over a file like "data".</summary>
  public Evaluation Evaluate(string data) {
    var evaluation = new Evaluation();
    Native.plait_trainer_evaluate(this, Utf8.Name(data), evaluation);
    return evaluation;
  }

  /// <summary>The same over documents like those of Step.</summary>
  public Evaluation Evaluate(Tensor ids, Tensor labels = null) {
    var evaluation = new Evaluation();
    Native.plait_trainer_evaluate_ids(this, ids, labels, evaluation);
    return evaluation;
  }

  /// <summary>The loss of a model with one of its own.</summary>
  public Evaluation Evaluate(IReadOnlyDictionary<string, Tensor> inputs) {
    var evaluation = new Evaluation();
    With(inputs, (names, numbers) => Native.plait_trainer_evaluate_inputs(this, names, numbers, numbers.Length, evaluation));
    return evaluation;
  }

  /// <summary>A checkpoint in "out".</summary>
  public void Save() {
    Native.plait_trainer_save(this);
  }

  /// <summary>The model with what was trained, as ONNX.</summary>
  public void Export(string directory) {
    Native.plait_trainer_export(this, Utf8.Name(directory));
  }

  /// <summary>Writes the adapters in PEFT's layout.</summary>
  public void SaveAdapter(string directory) {
    Native.plait_trainer_save_adapter(this, Utf8.Name(directory));
  }
}

}

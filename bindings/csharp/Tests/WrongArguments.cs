using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;

namespace Plait.Tests {

/// <summary>wrong_arguments.txt in C#: an exception each, and the process lives on.</summary>
internal sealed class WrongArguments {
  private readonly Model model = Model.Open(Scenarios.ModelPath);
  private readonly Generator generator;
  private readonly Session session;
  private readonly Dictionary<string, Action> cases = new Dictionary<string, Action>();

  internal WrongArguments() {
    generator = model.Generator(Scenarios.Small());
    session = model.Session(new Options().Threads(1));
  }

  private static void Load(Trainer trainer) {
    using (trainer) trainer.Wait();
  }

  private static T Closed<T>(T made) where T : IDisposable {
    made.Dispose();
    return made;
  }

  private void Models() {
    cases["model.path.missing"] = () => Model.Open("no such model");
    cases["model.path.null"] = () => Model.Open((string)null);
    cases["model.path.nul"] = () => Model.Open("a\0b");
    cases["model.file.damaged"] = () => Model.Open(Path.Combine(Program.Fixtures, "manifest.json"));
    cases["model.memory.empty"] = () => Model.Open(new Dictionary<string, Tensor>());
    cases["model.memory.null"] = () => Model.Open(new Dictionary<string, Tensor> {{"model.onnx", null}});
    cases["model.dump.unknown"] = () => model.Dump("dance");
    cases["model.closed"] = () => Closed(Model.Open(Scenarios.ModelPath)).Info();
    cases["trainer.pipeline.unknown"] = () => Load(model.Trainer(new Options().Set("mesh", "pipeline=2").Set("pipeline", "2f2b")));
    cases["trainer.stages.many"] = () => Load(model.Trainer(new Options().Set("mesh", "pipeline=64")));
    cases["trainer.stages.without"] = () => Load(model.Trainer(new Options().Set("stages", "1,1")));
    cases["options.key.unknown"] = () => new Options().Set("temprature", "1");
    cases["options.key.null"] = () => new Options().Set(null, "1");
    cases["options.value.wrong"] = () => new Options().Set("temperature", "warm");
    cases["options.value.null"] = () => new Options().Set("seed", (string)null);
    cases["options.of.another"] = () => generator.Submit(new[] {1}, new Options().Threads(1));
    cases["options.closed"] = () => generator.Submit(new[] {1}, Closed(new Options()));
    cases["text.surrogate.half"] = () => generator.Submit("a\ud800b");
  }

  private void Requests() {
    int[] fine = {1, 2, 3};
    cases["prompt.null"] = () => generator.Submit((string)null);
    cases["prompt.ids.null"] = () => generator.Submit((int[])null);
    cases["prompt.ids.empty"] = () => generator.Submit(new int[0]);
    cases["prompt.ids.negative"] = () => generator.Submit(new[] {-1});
    cases["prompt.ids.large"] = () => generator.Submit(new[] {512});
    cases["prompt.long"] = () => generator.Submit(new int[600]);
    cases["chat.no.json"] = () => generator.SubmitChat("no json");
    cases["parent.not.kept"] = () => generator.Submit(fine, null, generator.Submit(fine, Scenarios.Greedy(1)));
    cases["restore.nonsense"] = () => generator.Restore(Encoding.UTF8.GetBytes("nonsense!"));
    cases["restore.empty"] = () => generator.Restore(new byte[0]);
    cases["generator.closed"] = () => Closed(model.Generator(Scenarios.Small())).Submit(fine);
    cases["request.push.unasked"] = () => generator.Submit(fine, Scenarios.Greedy(1)).Push(1);
    cases["request.result.of.text"] = () => generator.Submit(fine, Scenarios.Greedy(1)).Result();
    cases["request.save.not.kept"] = () => generator.Submit(fine, Scenarios.Greedy(1)).Save();
    cases["request.closed"] = () => Closed(generator.Submit(fine, Scenarios.Greedy(1))).Next();
  }

  private void Tensors() {
    var floats = Tensor.Of(new float[6], 2, 3);
    var memory = new byte[24];
    cases["tensor.bytes.few"] = () => Tensor.Copy<byte>(DType.F32, new long[] {2, 4}, memory);
    cases["tensor.dims.negative"] = () => Tensor.Copy<byte>(DType.F32, new long[] {-1, 3}, memory);
    cases["tensor.dims.huge"] = () => Tensor.Copy<byte>(DType.F32, new[] {long.MaxValue / 2, 16}, memory);
    cases["tensor.dims.null"] = () => Tensor.Copy<byte>(DType.F32, null, memory);
    cases["tensor.rank.nine"] = () => Tensor.Copy<byte>(DType.F32, new long[] {1, 1, 1, 1, 1, 1, 1, 2, 3}, memory);
    cases["tensor.dtype.none"] = () => Tensor.Copy<byte>(DType.NONE, new long[] {6}, memory);
    cases["tensor.read.as.another"] = () => floats.Ints();
    cases["tensor.view.outside"] = () => floats.Use<float>(values => values.Slice(2, 6).Clear());
    cases["tensor.no.text"] = () => floats.Text();
    cases["tensor.closed"] = () => Closed(Tensor.Of(new float[1], 1)).Dims.ToString();
  }

  private void Sessions() {
    Dictionary<string, Tensor> inputs = Scenarios.Inputs(session, new[] {1});
    string first = inputs.Keys.First();
    cases["session.input.unknown"] = () => session.Run(With(inputs, "no such input", Tensor.Of(new long[1], 1)), "logits");
    cases["session.input.missing"] = () => session.Run(new Dictionary<string, Tensor>(), "logits");
    cases["session.input.null"] = () => session.Run(With(inputs, first, null), "logits");
    cases["session.input.dtype"] = () => session.Run(With(inputs, first, Tensor.Of(new float[1], 1, 1)), "logits");
    cases["session.input.closed"] = () => session.Run(With(inputs, first, Closed(Tensor.Of(new long[1], 1, 1))), "logits");
    cases["session.output.unknown"] = () => session.Run(inputs, "no such output");
    cases["session.closed"] = () => Closed(model.Session()).Inputs.ToString();
    cases["tokenizer.directory.missing"] = () => Tokenizer.Open("no such directory");
    cases["tokenizer.id.negative"] = () => model.Tokenizer().Piece(-1);
    cases["tokenizer.piece.unknown"] = () => model.Tokenizer().Id("no such piece");
    cases["tokenizer.closed"] = () => Closed(model.Tokenizer()).Encode("x");
  }

  private static Dictionary<string, Tensor> With(Dictionary<string, Tensor> inputs, string name, Tensor value) {
    return new Dictionary<string, Tensor>(inputs) {[name] = value};
  }

  private static string Outcome(Action call) {
    try {
      call();
      return "OK";
    } catch (PlaitException error) {
      Program.True(error.Message.Length > 0, "a message");
      return error.Status.ToString();
    } catch (ObjectDisposedException) {
      return "CLOSED";
    } catch (ArgumentNullException) {
      return "null";
    } catch (ArgumentOutOfRangeException) {
      return "INVALID_ARGUMENT";
    }
  }

  internal void Run() {
    Models();
    Requests();
    Tensors();
    Sessions();
    Dictionary<string, string> table = Program.Read("wrong_arguments.txt");
    Program.Test("the table and its cases", () => Program.Same(table.Keys.OrderBy(name => name), cases.Keys.OrderBy(name => name)));
    foreach (KeyValuePair<string, string> row in table) {
      Program.Test(row.Key, () => {
        string got = Outcome(cases[row.Key]);
        if (row.Value != "null" || got != "INVALID_ARGUMENT") Program.Same(new[] {row.Value}, new[] {got});
      });
    }
  }
}

}

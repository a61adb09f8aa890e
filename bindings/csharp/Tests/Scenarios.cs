using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Text;
using System.Threading;

namespace Plait.Tests {

/// <summary>scenarios.txt in C#.</summary>
internal sealed class Scenarios {
  private static readonly Dictionary<string, string> List = Program.Read("scenarios.txt");
  private readonly Model model = Model.Open(ModelPath);
  private readonly Generator generator;

  internal Scenarios() {
    generator = model.Generator(Small());
  }

  internal static string ModelPath {
    get { return Path.Combine(Program.Fixtures, List["model"]); }
  }
  internal static int[] Ids(string key) { return IdsOf(List[key]); }
  private static int[] IdsOf(string text) { return text.Split(',').Select(int.Parse).ToArray(); }
  internal static Options Small() { return new Options().Threads(1).Set("cache_bytes", "4M"); }
  internal static Options Greedy(long tokens) { return new Options().Temperature(0).IgnoreEos(true).MaxTokens(tokens); }
  internal static int[] Pull(Request request) {
    return request.Where(token => token.Id >= 0 && token.Sample == 0).Select(token => token.Id).ToArray();
  }
  private static byte[] Hex(string key) {
    string text = List[key];
    return Enumerable.Range(0, text.Length / 2).Select(i => Convert.ToByte(text.Substring(2 * i, 2), 16)).ToArray();
  }

  internal static int Likeliest(ReadOnlySpan<float> logits) {
    int best = 0;
    for (int i = 1; i < logits.Length; ++i) {
      if (logits[i] > logits[best]) best = i;
    }
    return best;
  }

  internal void Run() {
    Program.Test("stream text", StreamText);
    Program.Test("batch of prompts", BatchOfPrompts);
    Program.Test("requests by mailbox", RequestsByMailbox);
    Program.Test("server inside", ServerInside);
    Program.Test("embeddings", Embeddings);
    Program.Test("log-probabilities of a prompt", PromptLogprobs);
    Program.Test("session tensors", SessionTensors);
    Program.Test("strings and lists", StringsAndLists);
    Program.Test("an optional of a sequence", OptionalSequence);
    Program.Test("host sampling", HostSampling);
    Program.Test("model from memory", ModelFromMemory);
    Program.Test("mesh of threads", MeshOfThreads);
    Program.Test("saved conversation", SavedConversation);
    Program.Test("texts", Texts);
    Program.Test("cancellation", Cancellation);
    Program.Test("fine-tune", FineTune);
    Program.Test("adapters", Adapters);
    model.Dispose();
    generator.Dispose();
  }

  private void StreamText() {
    var ids = new List<int>();
    var text = new StringBuilder();
    long tokens = long.Parse(List["stream.max_tokens"]);
    using (Request request = generator.Submit(List["stream.prompt"], Greedy(tokens))) {
      foreach (Token token in request) {
        if (token.Id >= 0) ids.Add(token.Id);
        text.Append(token.Text);
      }
      Program.True((long)request.Usage().NewTokens == tokens, "usage");
    }
    Program.Same(Ids("stream.tokens"), ids);
    Program.Same(Hex("stream.text_hex"), Encoding.UTF8.GetBytes(text.ToString()));
  }

  private void BatchOfPrompts() {
    Options options = Greedy(long.Parse(List["batch.max_tokens"]));
    List<Request> requests = List["batch.prompts"].Split(';').Select(ids => generator.Submit(IdsOf(ids), options)).ToList();
    string[] expected = List["batch.tokens"].Split(';');
    Program.True(expected.Length == requests.Count, "as many as prompts");
    for (int i = 0; i < expected.Length; ++i) Program.Same(IdsOf(expected[i]), Pull(requests[i]));
    requests.ForEach(request => request.Dispose());
  }

  /// The same, pulled by one thread as tokens come.
  private void RequestsByMailbox() {
    Options options = Greedy(long.Parse(List["batch.max_tokens"]));
    List<Request> requests = List["batch.prompts"].Split(';').Select(ids => generator.Submit(IdsOf(ids), options)).ToList();
    List<List<int>> got = requests.Select(request => new List<int>()).ToList();
    using (var mailbox = new Mailbox()) {
      for (int i = 0; i < requests.Count; ++i) requests[i].Attach(mailbox, i);
      for (int ended = 0; ended < requests.Count;) {
        int tag = (int)mailbox.Next(60000);
        try {
          for (Token token = requests[tag].Next(0); token != null; token = requests[tag].Next(0)) {
            if (token.Id >= 0) got[tag].Add(token.Id);
          }
          ++ended;
        } catch (PlaitException error) {
          Program.True(error.Status == Status.TIMEOUT, error.Message);
        }
      }
      mailbox.Post(-7);
      Program.True(mailbox.Next(0) == -7, "a tag of the host's own");
    }
    string[] expected = List["batch.tokens"].Split(';');
    for (int i = 0; i < expected.Length; ++i) Program.Same(IdsOf(expected[i]), got[i].ToArray());
    requests.ForEach(request => request.Dispose());
  }

  /// What other programs get over HTTP while this one generates.
  private void ServerInside() {
    using (var server = new Server(new Options().Set("address", "127.0.0.1:0")))
    using (var client = new System.Net.Sockets.TcpClient()) {
      server.Add("gemma", model, generator);
      string body = "{\"model\": \"gemma\", \"prompt\": \"" + List["stream.prompt"] + "\", \"max_tokens\": 12, \"temperature\": 0}";
      client.ConnectAsync("127.0.0.1", new Uri(server.Address).Port).Wait();
      System.IO.Stream stream = client.GetStream();
      byte[] call = Encoding.ASCII.GetBytes("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: " +
          body.Length + "\r\n\r\n" + body);
      stream.Write(call, 0, call.Length);
      string answer = new System.IO.StreamReader(stream).ReadToEnd();
      Program.True(answer.Contains("\"completion_tokens\":12"), answer);
      Program.True(server.Drain(30000), "all calls are answered");
      Program.True(server.Statistics().Calls == 0, "no call is left");
    }
  }

  private void PromptLogprobs() {
    string[] expected = List["prompt_logprobs"].Split(',');
    using (Request request = generator.Submit(Ids("prompt"), new Options().PromptLogprobs(2).MaxTokens(1))) {
      List<Token> tokens = request.Where(token => token.IsPrompt).ToList();
      Program.True(tokens.Count == expected.Length + 1 && float.IsNaN(tokens[0].Logprob), "all tokens, the first without");
      for (int i = 0; i < expected.Length; ++i) {
        Program.True(Math.Abs(float.Parse(expected[i], CultureInfo.InvariantCulture) - tokens[i + 1].Logprob) < 1e-4, "value " + i);
        Program.True(tokens[i + 1].TopIds.Length == 2, "alternatives");
      }
    }
  }

  private void Embeddings() {
    using (Request request = generator.Submit(Ids("prompt"), new Options().Kind("embed").Pooling("mean")))
    using (Tensor result = request.Result()) {
      float[] values = result.Floats();
      string[] expected = List["embed.first"].Split(',');
      for (int i = 0; i < expected.Length; ++i) {
        Program.True(Math.Abs(float.Parse(expected[i], CultureInfo.InvariantCulture) - values[i]) < 1e-4, "value " + i);
      }
    }
  }

  internal static Dictionary<string, Tensor> Inputs(Session session, int[] prompt) {
    var inputs = new Dictionary<string, Tensor>();
    foreach (Operand operand in session.Inputs) {
      long[] dims = operand.Dims;
      if (operand.Name.Contains("past")) {
        inputs[operand.Name] = Tensor.Of(new float[0], 1, dims[1], 0, dims[3]);
        continue;
      }
      long[] values = prompt.Select((id, i) => operand.Name == "input_ids" ? id : operand.Name == "position_ids" ? i : 1L).ToArray();
      inputs[operand.Name] = Tensor.Borrow(DType.I64, new[] {1L, values.Length}, values);
    }
    return inputs;
  }

  private void SessionTensors() {
    using (Model file = Model.Open(Path.Combine(Program.Fixtures, List["session.model"])))
    using (Session session = file.Session(new Options().Threads(1))) {
      Dictionary<string, Tensor> inputs = Inputs(session, Ids("prompt"));
      using (Tensor logits = session.Run(inputs, "logits")["logits"]) {
        int likeliest = -1;
        logits.Use<float>(values => likeliest = Likeliest(values.Slice(values.Length - 512)));
        Program.Same(Ids("session.likeliest"), new[] {likeliest});
      }
      Program.True(session.Outputs.Any(output => output.Name == "logits"), "an output of that name");
      foreach (Tensor input in inputs.Values) input.Dispose();
    }
  }

  private void StringsAndLists() {
    string[] words = List["strings.words"].Split(';'), x = List["strings.x"].Split(','), joined = List["strings.joined"].Split(',');
    Tensor[] parts = words.Select(part => Tensor.Of(part.Split(','), part.Split(',').Length)).ToArray();
    var files = new Dictionary<string, Tensor> {["model.onnx"] = Tensor.Of(Enumerable.Range(1, 4).SelectMany(i => Hex("strings.model_hex" + i)).ToArray())};
    using (Model file = Model.Open(files))
    using (Session session = file.Session(new Options().Threads(1))) {
      Program.True(session.Inputs[0].IsList == 1 && session.Inputs[1].IsList == 0, "which input is a list");
      var inputs = new Dictionary<string, Tensor> {["words"] = Tensor.List(DType.STRING, parts), ["x"] = Tensor.Of(x, x.Length)};
      Dictionary<string, Tensor> results = session.Run(inputs, "joined", "more");
      Program.True(joined.SequenceEqual(results["joined"].Strings()), "what was joined");
      Tensor[] more = results["more"].Parts();
      Program.True(more.Length == parts.Length + 1, "one more part");
      for (int i = 0; i < parts.Length; ++i) Program.True(words[i].Split(',').SequenceEqual(more[i].Strings()), "a part");
      Program.True(joined.SequenceEqual(more[parts.Length].Strings()), "the last part");
    }
  }

  private void OptionalSequence() {
    Tensor[] words = List["strings.words"].Split(';').Select(part => Tensor.Of(part.Split(','), part.Split(',').Length)).ToArray();
    var files = new Dictionary<string, Tensor> {["model.onnx"] = Tensor.Of(Enumerable.Range(1, 3).SelectMany(i => Hex("optional.model_hex" + i)).ToArray())};
    using (Model file = Model.Open(files))
    using (Session session = file.Session(new Options().Threads(1))) {
      Program.True(session.Inputs[0].IsList == 2, "an input that is a list of lists");
      foreach (bool given in new[] {true, false}) {
        Tensor[] whole = given ? new[] {Tensor.List(DType.STRING, words)} : new Tensor[0];
        Tensor again = session.Run(new Dictionary<string, Tensor> {["given"] = Tensor.List(DType.STRING, whole)}, "again")["again"];
        Tensor[] found = again.Parts();
        Program.True(found.Length == (given ? 1 : 0), "the optional");
        if (!given) continue;
        Tensor[] parts = found[0].Parts();
        Program.True(parts.Length == words.Length, "its sequence");
        for (int i = 0; i < parts.Length; ++i) Program.True(words[i].Strings().SequenceEqual(parts[i].Strings()), "a part of it");
      }
    }
  }

  private void HostSampling() {
    Options options = Greedy(16).HostSampling(true);
    using (Request request = generator.Submit(Ids("prompt"), options)) {
      request.Sampler = Likeliest;
      Program.Same(Ids("greedy"), Pull(request));
    }
    var ids = new List<int>();
    using (Request request = generator.Submit(Ids("prompt"), options)) {
      foreach (Token token in request) {
        if (token.Logits != null) request.Push(Likeliest(token.Logits));
        if (token.Id >= 0) ids.Add(token.Id);
      }
    }
    Program.Same(Ids("greedy"), ids);
  }

  private void ModelFromMemory() {
    var names = new[] {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"};
    Dictionary<string, Tensor> files = names.ToDictionary(name => name, name => {
      byte[] bytes = File.ReadAllBytes(Path.Combine(ModelPath, name));
      return Tensor.Borrow(DType.U8, new[] {(long)bytes.Length}, bytes);
    });
    Generator other;
    using (Model memory = Model.Open(files)) {
      foreach (Tensor file in files.Values) file.Dispose();
      other = memory.Generator(Small());
    }
    files = null;
    GC.Collect();
    GC.WaitForPendingFinalizers();
    using (Request request = other.Submit(Ids("prompt"), Greedy(16))) {
      other.Dispose();
      GC.Collect();
      Program.Same(Ids("greedy"), Pull(request));
    }
  }

  private void MeshOfThreads() {
    using (Generator ranks = model.Generator(Small().Mesh(List["mesh"])))
    using (Request request = ranks.Submit(Ids("prompt"), Greedy(16))) Program.Same(Ids("greedy"), Pull(request));
  }

  private void SavedConversation() {
    byte[] saved;
    using (Request begun = generator.Submit(Ids("prompt"), Greedy(long.Parse(List["saved.max_tokens"])).Keep(true))) {
      Program.Same(Ids("saved.begun"), Pull(begun));
      saved = begun.Save();
    }
    using (Generator other = model.Generator(Small()))
    using (Request restored = other.Restore(saved))
    using (Request more = other.Submit(Ids("saved.more"), Greedy(16), restored)) Program.Same(Ids("saved.continued"), Pull(more));
  }

  private void Texts() {
    string text = Encoding.UTF8.GetString(Hex("utf8.hex"));
    using (Tokenizer tokenizer = model.Tokenizer()) {
      int[] ids = tokenizer.Encode(text, false);
      Program.Same(Ids("utf8.tokens"), ids);
      Program.True(tokenizer.Decode(ids, false) == text, "the same text");
      Program.True(tokenizer.Facts().Vocabulary == 512 && tokenizer.Id(tokenizer.Piece(5)) == 5, "facts");
      var bytes = new List<byte>();
      foreach (int id in ids) bytes.AddRange(tokenizer.Bytes(id));
      Program.True(Encoding.UTF8.GetString(bytes.ToArray()) == text, "the bytes of its tokens");
    }
  }

  private void FineTune() {
    FineTune("");
    FineTune(List["train.mesh"]);
  }

  private void FineTune(string mesh) {
    Options options = new Options().Threads(1).Set("optimizer", "sgd").Set("lr", List["train.lr"]).Set("schedule", "constant")
        .Set("weight_decay", 0).Set("mesh", mesh);
    int[] document = Ids("train.ids");
    double[] losses = List["train.losses"].Split(',').Select(text => double.Parse(text, CultureInfo.InvariantCulture)).ToArray();
    using (Trainer trainer = model.Trainer(options))
    using (Tensor ids = Tensor.Of(document, 1, document.Length)) {
      foreach (double loss in losses) Program.True(Math.Abs(trainer.Step(ids).Loss - loss) < 1e-3, "loss " + loss);
      Program.True(trainer.Evaluate(ids).Loss < losses[0], "it learns");
    }
  }

  private void Adapters() {
    Options options = new Options().Threads(1).Set("lora", 8).Set("lr", List["adapter.lr"]).Set("schedule", "constant");
    int[] document = Ids("adapter.ids");
    string directory = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
    using (Trainer trainer = model.Trainer(options))
    using (Tensor ids = Tensor.Of(document, 1, document.Length)) {
      for (int left = int.Parse(List["adapter.steps"]); left > 0; --left) trainer.Step(ids);
      trainer.SaveAdapter(directory);
    }
    using (Generator adapted = model.Generator(Small().AdapterRoom(1, 8))) {
      adapted.AddAdapter("taught", directory);
      Directory.Delete(directory, true);
      Program.True(adapted.Adapters() == "[\"taught\"]", "its name");
      using (Request with = adapted.Submit(Ids("prompt"), Greedy(8).Adapter("taught")))
      using (Request without = adapted.Submit(Ids("prompt"), Greedy(16))) {
        Program.Same(Ids("adapter.tokens"), Pull(with));
        Program.Same(Ids("greedy"), Pull(without));
      }
      adapted.RemoveAdapter("taught");
      try {
        adapted.Submit(Ids("prompt"), Greedy(8).Adapter("taught"));
        throw new Exception("it is gone");
      } catch (PlaitException error) {
        Program.True(error.Status == Status.NOT_FOUND && error.Message.Contains("taught"), error.Message);
      }
    }
  }

  private void Cancellation() {
    using (var source = new CancellationTokenSource())
    using (Request request = generator.Submit(Ids("prompt"), Greedy(400))) {
      int seen = 0;
      try {
        foreach (Token token in request.Tokens(source.Token)) {
          if (++seen == 3) source.Cancel();
        }
        throw new Exception("it was not cancelled");
      } catch (OperationCanceledException) {
        Program.True(seen >= 3 && seen < 400, "in the middle");
      }
    }
  }
}

}

using System;
using System.IO;
using System.Linq;
using Plait;

/// <summary>A model whose files are in memory, from wherever they come: here they are read. Usage: MODEL_DIRECTORY PROMPT</summary>
static class Memory {
  static void Main(string[] words) {
    var names = new[] {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"};
    var files = names.ToDictionary(name => name, name => Tensor.Of(File.ReadAllBytes(Path.Combine(words[0], name))));
    using (Model model = Model.Open(files))
    using (Generator generator = model.Generator())
    using (Request request = generator.Submit(words[1], new Options().MaxTokens(16).Temperature(0))) Console.WriteLine(request.Text());
  }
}

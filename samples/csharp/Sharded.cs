using System;
using Plait;

/// <summary>A model that is spread over ranks, which are threads of this process. Usage: MODEL_DIRECTORY MESH PROMPT, with a mesh as
/// tensor=2</summary>
static class Sharded {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator(new Options().Mesh(words[1])))
    using (Request request = generator.Submit(words[2], new Options().MaxTokens(16).Temperature(0))) {
      Console.WriteLine(request.Text());
      Console.Error.WriteLine(generator.Ranks());
    }
  }
}

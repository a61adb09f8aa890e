using System;
using Plait;

/// <summary>The smallest program that generates text: mcs -r:Plait.dll Stream.cs, then mono Stream.exe MODEL_DIRECTORY PROMPT</summary>
static class Stream {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator())
    using (Request request = generator.Submit(words[1], new Options().MaxTokens(64))) {
      foreach (Token token in request) Console.Write(token.Text);
      Console.WriteLine();
    }
  }
}

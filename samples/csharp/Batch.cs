using System;
using System.Linq;
using Plait;

/// <summary>Several prompts at once: they share the steps. Usage: MODEL_DIRECTORY PROMPT...</summary>
static class Batch {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator()) {
      Options options = new Options().MaxTokens(16).Temperature(0);
      foreach (Request request in words.Skip(1).Select(prompt => generator.Submit(prompt, options)).ToList()) {
        Console.WriteLine(request.Text());
        request.Dispose();
      }
    }
  }
}

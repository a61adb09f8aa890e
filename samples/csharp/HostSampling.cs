using System;
using Plait;

/// <summary>The program chooses the tokens itself, here the likeliest one that is even. Usage: MODEL_DIRECTORY PROMPT</summary>
static class HostSampling {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator())
    using (Request request = generator.Submit(words[1], new Options().HostSampling(true).MaxTokens(16))) {
      request.Sampler = Choose;
      Console.WriteLine(request.Text());
    }
  }

  static int Choose(ReadOnlySpan<float> logits) {
    int best = 0;
    for (int token = 2; token < logits.Length; token += 2) {
      if (logits[token] > logits[best]) best = token;
    }
    return best;
  }
}

using System;
using System.Diagnostics;
using Plait;

/// <summary>pull.c in C#.</summary>
static class Pull {
  static long Nanoseconds(Stopwatch clock) {
    return (long)(clock.Elapsed.TotalMilliseconds * 1e6);
  }

  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator(new Options().Threads(1).Set("cache_bytes", "4M"))) {
      Options greedy = new Options().IgnoreEos(true).MaxTokens(480).Temperature(0);
      var from = new byte[1 << 20];
      for (int round = 0; round < int.Parse(words[1]); ++round) {
        long pulled;
        using (Request request = generator.Submit(new[] {5, 6, 7}, greedy)) {
          while (request.Usage().NewTokens < 480) {}
          var clock = Stopwatch.StartNew();
          int tokens = 0;
          while (request.Next() != null) ++tokens;
          pulled = Nanoseconds(clock) / tokens;
        }
        var copy = Stopwatch.StartNew();
        using (Tensor tensor = Tensor.Of(from)) tensor.ToBytes();
        Console.WriteLine($"{pulled} {Nanoseconds(copy)}");
      }
    }
  }
}

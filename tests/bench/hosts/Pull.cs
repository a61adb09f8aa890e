using System;
using System.Diagnostics;
using Plait;

/// <summary>pull.c in C#; a third number is the bytes of garbage that a token leaves.</summary>
static class Pull {
  static long Nanoseconds(Stopwatch clock) {
    return (long)(clock.Elapsed.TotalMilliseconds * 1e6);
  }

  /// <summary>Not in the profile that is compiled for, but in all runtimes of these years.</summary>
  static readonly Func<long> Allocated =
      (Func<long>)Delegate.CreateDelegate(typeof(Func<long>), typeof(GC).GetMethod("GetAllocatedBytesForCurrentThread"));

  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator(new Options().Threads(1).Set("cache_bytes", "4M"))) {
      Options greedy = new Options().IgnoreEos(true).MaxTokens(480).Temperature(0);
      byte[] from = new byte[1 << 20], to = new byte[1 << 20];
      for (int round = 0; round < int.Parse(words[1]); ++round) {
        long pulled, garbage;
        using (Request request = generator.Submit(new[] {5, 6, 7}, greedy)) {
          while (request.Usage().NewTokens < 480) {}
          long before = Allocated();
          var clock = Stopwatch.StartNew();
          int tokens = 0;
          while (request.Next() != null) ++tokens;
          pulled = Nanoseconds(clock) / tokens;
          garbage = (Allocated() - before) / tokens;
        }
        var copy = Stopwatch.StartNew();
        for (int i = 0; i < 16; ++i) {
          using (Tensor tensor = Tensor.Of(from)) tensor.CopyTo<byte>(to);
        }
        Console.WriteLine($"{pulled} {Nanoseconds(copy) / 16} {garbage}");
      }
    }
  }
}

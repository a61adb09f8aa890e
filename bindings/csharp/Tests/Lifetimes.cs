using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Plait.Tests {

/// <summary>Disposing in any order, from any thread, or never.</summary>
internal static class Lifetimes {
  private static readonly int[] Prompt = Scenarios.Ids("prompt"), Greedy = Scenarios.Ids("greedy");
  private static readonly List<Request> Running = new List<Request>();

  internal static void Run() {
    Program.Test("any order, twice", AnyOrder);
    Program.Test("from another thread, while it waits", WhileWaiting);
    Program.Test("finalizers", Finalizers);
    Program.Test("open and dispose", OpenAndDispose);
    Program.Test("garbage", Garbage);
    Program.Test("many threads", ManyThreads);
  }

  private static void AnyOrder() {
    for (int order = 0; order < 6; ++order) {
      Model model = Model.Open(Scenarios.ModelPath);
      Generator generator = model.Generator(Scenarios.Small());
      Request request = generator.Submit(Prompt, Scenarios.Greedy(16));
      var rest = new List<IDisposable> {model, generator, request};
      IDisposable first = rest[order % 3];
      rest.RemoveAt(order % 3);
      if (order >= 3) rest.Reverse();
      first.Dispose();
      if (!(first is Request)) Program.Same(Greedy, Scenarios.Pull(request));
      foreach (IDisposable one in rest) one.Dispose();
      foreach (IDisposable one in rest) one.Dispose();
      first.Dispose();
    }
  }

  private static void WhileWaiting() {
    using (Model model = Model.Open(Scenarios.ModelPath))
    using (Generator generator = model.Generator(Scenarios.Small())) {
      for (int round = 0; round < 20; ++round) {
        Request request = generator.Submit(Prompt, Scenarios.Greedy(16).HostSampling(true));
        request.Next();
        var other = new Thread(() => {
          Thread.Sleep(round % 5);
          request.Dispose();
        });
        other.Start();
        try {
          while (request.Next() != null) {}
        } catch (ObjectDisposedException) {
          // It was disposed of between two calls.
        }
        other.Join();
      }
    }
  }

  [MethodImpl(MethodImplOptions.NoInlining)]
  private static void Forget() {
    Model model = Model.Open(Scenarios.ModelPath);
    Generator generator = model.Generator(Scenarios.Small());
    generator.Submit(Prompt, Scenarios.Greedy(400)).Next();
  }

  private static void Finalizers() {
    for (int round = 0; round < 10; ++round) {
      var thread = new Thread(Forget);
      thread.Start();
      thread.Join();
    }
    GC.Collect();
    GC.WaitForPendingFinalizers();
  }

  private static long ResidentBytes() {
    string line = File.ReadLines("/proc/self/status").First(text => text.StartsWith("VmRSS"));
    return 1024 * long.Parse(line.Split(new[] {' ', '\t'}, StringSplitOptions.RemoveEmptyEntries)[1]);
  }

  /// <summary>Eight looks at what stays, each behind as many rounds: 2,000 in all in a soak of a minute.</summary>
  private static void OpenAndDispose() {
    int rounds = Math.Min(250, 5 * Program.Seconds);
    var resident = new List<long>();
    while (resident.Count < 8) {
      for (int round = 0; round < rounds; ++round) {
        using (Model model = Model.Open(Scenarios.ModelPath))
        using (Generator generator = model.Generator(Scenarios.Small()))
        using (Request request = generator.Submit(Prompt, Scenarios.Greedy(4))) request.Text();
      }
      GC.Collect();
      GC.WaitForPendingFinalizers();
      resident.Add(ResidentBytes());
    }
    Console.WriteLine($"{8 * rounds} rounds, {string.Join(", ", resident.Select(bytes => bytes >> 20))} MiB resident");
    long first = resident.Take(2).Max(), last = resident.Skip(6).Min();
    Program.True(last <= first + first / 20, "memory stays flat");
  }

  /// <summary>A token that is pulled leaves nothing behind but itself.</summary>
  private static void Garbage() {
    // Not in the profile that is compiled for, but in all runtimes of these years.
    var allocated = (Func<long>)Delegate.CreateDelegate(typeof(Func<long>), typeof(GC).GetMethod("GetAllocatedBytesForCurrentThread"));
    long least = long.MaxValue, token = 0;
    using (Model model = Model.Open(Scenarios.ModelPath, new Options().Set("tokenizer", "none")))
    using (Generator generator = model.Generator(Scenarios.Small())) {
      for (int round = 0; round < 3; ++round) {  // the first time code is compiled
        using (Request request = generator.Submit(Prompt, Scenarios.Greedy(400))) {
          request.Next();
          long before = allocated();
          while (request.Next() != null) {}
          least = Math.Min(least, (allocated() - before) / 399);
        }
        long here = allocated();
        for (int i = 0; i < 400; ++i) GC.KeepAlive(new Token());
        token = (allocated() - here) / 400;
      }
    }
    Program.True(least <= token, $"{least} bytes a token, which has {token} itself");
  }

  private static void ManyThreads() {
    using (Model model = Model.Open(Scenarios.ModelPath))
    using (Generator generator = model.Generator(Scenarios.Small().Set("queue", 1000))) {
      var clock = Stopwatch.StartNew();
      int wrong = 0, done = 0;
      var threads = Enumerable.Range(0, 200).Select(number => new Thread(() => {
        var random = new Random(number);
        do {
          using (Request request = generator.Submit(Prompt, Scenarios.Greedy(16))) {
            if (random.Next(2) == 0) {
              request.Cancel();
              request.Text();
            } else if (!Greedy.SequenceEqual(Scenarios.Pull(request))) {
              Interlocked.Increment(ref wrong);
            }
          }
          Interlocked.Increment(ref done);
        } while (clock.Elapsed.TotalSeconds < Program.Seconds);
      }, 256 << 10)).ToList();
      threads.ForEach(thread => thread.Start());
      threads.ForEach(thread => thread.Join());
      Console.WriteLine($"{done} requests by 200 threads");
      Program.True(wrong == 0 && done >= 200, "all as one by one");
    }
  }

  /// <summary>Generation continues while the process ends.</summary>
  internal static void LeaveRunning() {
    Generator generator = Model.Open(Scenarios.ModelPath).Generator(Scenarios.Small());
    for (int i = 0; i < 4; ++i) {
      Running.Add(generator.Submit(Prompt, Scenarios.Greedy(400)));
      Running[i].Next();
    }
  }
}

}

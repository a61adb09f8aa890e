using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;

namespace Plait.Tests {

/// <summary>Runs all tests: mono Tests.exe FIXTURES LISTS SECONDS, where LISTS is tests/bindings and SECONDS how long the soaks take.
/// </summary>
internal static class Program {
  internal static string Fixtures;
  internal static int Seconds;
  private static int failures;

  internal static Dictionary<string, string> Read(string name) {
    return File.ReadAllLines(Path.Combine(lists, name))
        .Where(line => !line.StartsWith("#") && line.Contains(" = "))
        .Select(line => line.Split(new[] {" = "}, 2, StringSplitOptions.None))
        .ToDictionary(words => words[0], words => words[1]);
  }
  private static string lists;

  internal static void Test(string name, Action body) {
    try {
      body();
    } catch (Exception error) {
      ++failures;
      Console.WriteLine($"{name}: {error}");
    }
  }

  internal static void Same<T>(IEnumerable<T> expected, IEnumerable<T> got) {
    if (!expected.SequenceEqual(got)) throw new Exception($"expected {string.Join(",", expected)}; got {string.Join(",", got)}");
  }

  internal static void True(bool condition, string what) {
    if (!condition) throw new Exception("not so: " + what);
  }

  private static int Main(string[] words) {
    Fixtures = words[0];
    lists = words[1];
    Seconds = int.Parse(words[2]);
    Console.WriteLine("Plait " + Library.Version);
    new Scenarios().Run();
    new WrongArguments().Run();
    Lifetimes.Run();
    Console.WriteLine($"{failures} failures");
    // At exit requests run that were not released.
    Lifetimes.LeaveRunning();
    return failures == 0 ? 0 : 1;
  }
}

}

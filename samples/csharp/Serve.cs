using System;
using Plait;

/// <summary>A server for OpenAI's clients within this process, until its input ends. Usage: MODEL_DIRECTORY [ADDRESS]</summary>
static class Serve {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator())
    using (Server server = new Server(new Options().Set("address", words.Length > 1 ? words[1] : "127.0.0.1:8080"))) {
      server.Add("model", model, generator);  // which this process may use, too: all requests share steps
      Console.WriteLine(server.Address);
      while (Console.In.Read() >= 0) {}
      server.Drain(30000);
    }
  }
}

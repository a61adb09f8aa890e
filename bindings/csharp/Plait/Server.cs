using System;
using System.Collections.Generic;

namespace Plait {

/// <summary>An HTTP server for OpenAI's clients within this process (docs/serving.md). It listens from its creation on, and answers 503
/// until its models are loaded. The generators may be used here, too: all requests share steps. All calls at once; disposing of it ends
/// all calls.</summary>
public sealed class Server : NativeObject {
  private readonly List<object> served = new List<object>();

  /// <summary>Options of "server": "address", "api_key", ...</summary>
  public Server(Options options = null) : base(Make(options), null) {}

  internal override void Release(NativeObject number) {
    Native.plait_server_release(number);
  }

  /// <summary>Serves the generator of a model, which may still be loading, under a name.</summary>
  public Server Add(string name, Model model, Generator generator) {
    Native.plait_server_add(this, Utf8.Name(name), model, generator);
    lock (served) {
      served.Add(model);
      served.Add(generator);
    }
    return this;
  }

  /// <summary>"http://127.0.0.1:8080", with the port that it listens on; or "unix:PATH".</summary>
  public string Address {
    get {
      Native.plait_server_address(this, out var text);
      return Tensor.TextOf(text);
    }
  }

  /// <summary>Takes no more connections, and waits until all calls are answered. False after the time (negative: no limit): the rest are
  /// ended.</summary>
  public bool Drain(long milliseconds) {
    try {
      Native.plait_server_drain(this, milliseconds);
      return true;
    } catch (PlaitException error) when (error.Status == Status.TIMEOUT) {
      return false;
    }
  }

  /// <summary>Connections and calls.</summary>
  public ServerStats Statistics() {
    var out_ = new ServerStats();
    Native.plait_server_statistics(this, out_);
    return out_;
  }

  private static IntPtr Make(Options options) {
    Native.plait_server_create(options, out var made);
    return made;
  }
}

}

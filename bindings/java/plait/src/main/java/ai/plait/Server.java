package ai.plait;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * An HTTP server for OpenAI's clients within this process (docs/serving.md). It listens from its creation on, and answers 503 until its
 * models are loaded. The generators may be used here, too: all requests share steps. All calls at once; closing it ends all calls.
 */
public final class Server extends NativeObject {
  private final List<Object> served = Collections.synchronizedList(new ArrayList<>());

  /** Options of "server": "address", "api_key", ... */
  public Server(Options options) {
    super(Native.plait_server_create(options), Native::plait_server_release);
  }

  /** Serves the generator of a model, which may still be loading, under a name. */
  public Server add(String name, Model model, Generator generator) {
    Native.plait_server_add(this, name, model, generator);
    served.add(model);
    served.add(generator);
    return this;
  }

  /** "http://127.0.0.1:8080", with the port that it listens on; or "unix:PATH". */
  public String address() {
    return Tensor.textOf(Native.plait_server_address(this));
  }

  /** Takes no more connections, and waits until all calls are answered. False after {@code time}: the rest are ended. */
  public boolean drain(Duration time) {
    try {
      Native.plait_server_drain(this, time.toMillis());
      return true;
    } catch (PlaitException error) {
      if (error.status() != Status.TIMEOUT) throw error;
      return false;
    }
  }

  public ServerStats statistics() {
    ServerStats out = new ServerStats();
    Native.plait_server_statistics(this, out);
    return out;
  }
}

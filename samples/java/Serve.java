import ai.plait.*;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;

/** A server for OpenAI's clients within this process, until its input ends. Usage: MODEL_DIRECTORY [ADDRESS] */
class Serve {
  public static void main(String[] words) throws IOException {
    Options options = new Options().set("address", words.length > 1 ? words[1] : "127.0.0.1:8080");
    try (Model model = Model.open(Path.of(words[0])); Generator generator = model.generator(null); Server server = new Server(options)) {
      server.add("model", model, generator);  // which this process may use, too: all requests share steps
      System.out.println(server.address());
      while (System.in.read() >= 0) {}
      server.drain(Duration.ofSeconds(30));
    }
  }
}

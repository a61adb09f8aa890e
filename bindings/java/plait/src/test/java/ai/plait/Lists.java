package ai.plait;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** The lists that all languages share (tests/bindings), and where the fixtures are. */
final class Lists {
  static final Path FIXTURES = Paths.get(System.getProperty("plait.fixtures"));
  static final Map<String, String> SCENARIOS = read("scenarios.txt");

  private Lists() {}

  static Map<String, String> read(String name) {
    try {
      Map<String, String> out = new LinkedHashMap<>();
      for (String line : Files.readAllLines(Paths.get(System.getProperty("plait.lists"), name), StandardCharsets.UTF_8)) {
        int sign = line.indexOf(" = ");
        if (!line.startsWith("#") && sign > 0) out.put(line.substring(0, sign), line.substring(sign + 3));
      }
      return out;
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  static String text(String key) {
    return SCENARIOS.get(key);
  }

  static int[] ids(String key) {
    return idsOf(text(key));
  }

  static int[] idsOf(String text) {
    return Arrays.stream(text.split(",")).mapToInt(Integer::parseInt).toArray();
  }

  static byte[] hex(String key) {
    String text = text(key);
    byte[] out = new byte[text.length() / 2];
    for (int i = 0; i < out.length; ++i) out[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
    return out;
  }

  static Path model() {
    return FIXTURES.resolve(text("model"));
  }

  static Options small() {
    return new Options().threads(1).set("cache_bytes", "4M");
  }

  static Options greedy(long tokens) {
    return new Options().temperature(0).ignoreEos(true).maxTokens(tokens);
  }

  static int[] pull(Request request) {
    return request.tokens().filter(token -> token.id() >= 0 && token.sample() == 0).mapToInt(Token::id).toArray();
  }
}

package ai.plait.serve;

import ai.plait.Model;
import ai.plait.Options;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;

/**
 * The contents of a model's configuration (serving.properties, without "option."), in the words of DJL's large-model serving. Every option of
 * Plait's generators can be given too, with "plait." in front: plait.cache_bytes=2G.
 */
public final class ServingOptions {
  private final Map<String, ?> options;
  private final int devices;

  /** {@code devices}: how many the server gives to this copy of the model; 1 for a plain one. */
  public ServingOptions(Map<String, ?> options, int devices) {
    this.options = options;
    this.devices = devices;
    String quantize = text("quantize", "");
    String stages = text("pipeline_parallel_degree", "1");
    if (!stages.equals("1")) {
      throw new IllegalArgumentException("option.pipeline_parallel_degree=" + stages + ": a model is spread only by option.tensor_parallel_degree"
          + ". Set that, and leave this out");
    }
    if (!quantize.isEmpty() && !quantize.equals("none")) {
      throw new IllegalArgumentException("option.quantize=" + quantize + ": weights are taken as the file has them. Quantise the model "
          + "when it is exported (int8, int4), and leave the option out");
    }
  }

  /** For {@link Model#generator}; {@code directory} is the model's, whose folder "adapters" has an adapter a folder. */
  public Options generator(Model model, Path directory) throws IOException {
    Options out = new Options();
    String dtype = dtype(text("dtype", "auto"));
    if (!dtype.isEmpty()) out.dtype(dtype);
    int ranks = ranks(model);
    if (ranks > 1) out.mesh("tensor=" + ranks);
    String running = text("max_rolling_batch_size", "");
    if (!running.isEmpty()) out.set("running", running);
    String step = text("max_rolling_batch_prefill_tokens", "");
    if (!step.isEmpty()) out.set("step_tokens", step);
    Path adapters = directory.resolve("adapters");
    if (Files.isDirectory(adapters)) {
      try (Stream<Path> all = Files.list(adapters)) {
        all.filter(Files::isDirectory).forEach(one -> out.adapter(one.getFileName().toString(), one));
      }
    }
    options.forEach((key, value) -> {
      if (key.startsWith("plait.")) out.set(key.substring("plait.".length()), String.valueOf(value));
    });
    return out;
  }

  /** "json", "jsonlines" or "sse"; "" when nothing is said. */
  public String formatter() {
    String name = text("output_formatter", tgi() ? "sse" : "");
    if (name.isEmpty() || name.equals("json") || name.equals("jsonlines") || name.equals("sse")) return name;
    throw new IllegalArgumentException("option.output_formatter=" + name + ": there are json, jsonlines and sse");
  }

  /** Whether replies are spelled as Text Generation Inference does. */
  public boolean tgi() {
    return Boolean.parseBoolean(text("tgi_compat", "false"));
  }

  /** Maximum time without a token of a reply. */
  public Duration limit() {
    return Duration.ofSeconds(Long.parseLong(text("predict_timeout", "120")));
  }

  /** Ranks of the axis tensor: as requested, otherwise as many as there are devices. */
  private int ranks(Model model) {
    String degree = text("tensor_parallel_degree", "");
    int asked = devices;
    if (degree.equals("max")) asked = devices > 1 ? devices : mostRanks(model);
    else if (!degree.isEmpty()) asked = Integer.parseInt(degree);
    if (devices > 1 && asked != devices) {
      throw new IllegalArgumentException("option.tensor_parallel_degree=" + degree + ", but load_on_devices gives " + devices
          + " devices to each copy: the two have to agree");
    }
    return asked;
  }

  /** The largest number of ranks for which there are processors, and heads to share out evenly. */
  private static int mostRanks(Model model) {
    JsonObject info = JsonParser.parseString(model.info()).getAsJsonObject();
    int heads = info.has("kv_heads") && info.get("kv_heads").isJsonPrimitive() ? info.get("kv_heads").getAsInt() : 1;
    int ranks = Math.max(1, Math.min(heads, Runtime.getRuntime().availableProcessors()));
    while (heads % ranks != 0) --ranks;
    return ranks;
  }

  private static String dtype(String name) {
    switch (name.toLowerCase(Locale.ROOT)) {
      case "auto":
        return "";
      case "fp32":
      case "float32":
        return "f32";
      case "bf16":
      case "bfloat16":
        return "bf16";
      default:
        throw new IllegalArgumentException("option.dtype=" + name + ": there are auto, fp32 and bf16. Weights of a file in fp16 are read "
            + "as they are, without the option");
    }
  }

  private String text(String key, String otherwise) {
    Object value = options.get(key);
    return value == null ? otherwise : value.toString().trim();
  }
}

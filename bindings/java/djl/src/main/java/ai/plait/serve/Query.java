package ai.plait.serve;

import ai.plait.Generator;
import ai.plait.Options;
import ai.plait.Request;
import ai.plait.Tokenizer;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.function.Supplier;

/** The body of a request in one of the two schemas of DJL's large-model serving, told apart by their keys. */
public final class Query {
  private final JsonObject body;
  private final JsonObject parameters;
  private final ServingOptions options;
  private final boolean sse;
  private final boolean stream;

  /** {@code accept}: the header of that name, or "". Throws IllegalArgumentException for what is neither. */
  public Query(String text, String accept, ServingOptions options) {
    this.options = options;
    try {
      body = JsonParser.parseString(text).getAsJsonObject();
      parameters = body.has("parameters") ? body.getAsJsonObject("parameters") : body;
    } catch (JsonParseException | IllegalStateException | ClassCastException error) {
      throw new IllegalArgumentException("the body is no JSON object: " + error.getMessage());
    }
    if (!chat() && !body.has("inputs") && !body.has("prompt")) {
      throw new IllegalArgumentException("the body has none of messages, inputs and prompt");
    }
    String formatter = options.formatter();
    boolean streams = !formatter.isEmpty() && !formatter.equals("json");
    stream = body.has("stream") ? body.get("stream").getAsBoolean() : streams && !chat();
    sse = stream && (formatter.equals("sse") || accept.contains("text/event-stream"));
    if (stream && prompts().size() > 1) throw new IllegalArgumentException("several inputs cannot be streamed: send one, or no \"stream\"");
    if (stream && bool(parameters, "decoder_input_details", false)) {
      throw new IllegalArgumentException("decoder_input_details cannot be streamed: leave it out, or \"stream\"");
    }
  }

  public boolean chat() {
    return body.has("messages");
  }

  public boolean stream() {
    return stream;
  }

  /** Of what is streamed. */
  public boolean sse() {
    return sse;
  }

  /** Submits it: a request an input. */
  public List<Request> submit(Generator generator) {
    List<Request> out = new ArrayList<>();
    try (Options request = chat() ? chatOptions() : generateOptions()) {
      if (chat()) {
        adapter(0).ifPresent(request::adapter);
        out.add(generator.submitChat(body.get("messages").toString(), request));
      } else {
        List<String> prompts = prompts();
        for (int i = 0; i < prompts.size(); ++i) {
          adapter(i).ifPresent(request::adapter);
          out.add(generator.submit(prompts.get(i), request));
        }
      }
      return out;
    } catch (RuntimeException error) {
      out.forEach(Request::close);
      throw error;
    }
  }

  /** What makes the reply; {@code tokenizers} gives the model's, for details of prompts. */
  public Reply reply(Generator generator, Supplier<Tokenizer> tokenizers) {
    if (chat()) return new ChatReply(stream, sse, text(body, "model", "plait"), bool(body, "logprobs", false));
    boolean details = bool(parameters, "details", false);
    PromptTokens prompt = details && bool(parameters, "decoder_input_details", false) ? new PromptTokens(generator, tokenizers) : null;
    return new GenerateReply(prompts(), this, details, prompt, bool(parameters, "return_full_text", false), options.tgi());
  }

  private List<String> prompts() {
    List<String> out = new ArrayList<>();
    JsonElement inputs = body.has("inputs") ? body.get("inputs") : body.get("prompt");
    if (inputs == null) return out;
    if (inputs.isJsonArray()) inputs.getAsJsonArray().forEach(one -> out.add(one.getAsString()));
    else out.add(inputs.getAsString());
    return out;
  }

  /** That input {@code index} names: "adapters" is one name for all, or a list of one each. */
  private Optional<String> adapter(int index) {
    JsonElement names = body.get("adapters");
    if (names == null || names.isJsonNull()) return Optional.empty();
    if (!names.isJsonArray()) return Optional.of(names.getAsString());
    int inputs = Math.max(1, prompts().size());
    if (names.getAsJsonArray().size() != inputs) {
      throw new IllegalArgumentException("there are " + names.getAsJsonArray().size() + " adapters for " + inputs + " inputs");
    }
    return Optional.of(names.getAsJsonArray().get(index).getAsString());
  }

  /** Sampling is asked for by do_sample, or, without it, by a parameter of sampling. */
  private Options generateOptions() {
    Options out = new Options().maxTokens(parameters.has("max_new_tokens") ? parameters.get("max_new_tokens").getAsLong() : 30);
    boolean sampled = bool(parameters, "do_sample",
        parameters.has("temperature") || parameters.has("top_k") || parameters.has("top_p"));
    out.temperature(!sampled ? 0 : parameters.has("temperature") ? parameters.get("temperature").getAsDouble() : 1);
    if (sampled) copy(parameters, out, "top_p", "top_p", "min_p", "min_p");
    // Elsewhere -1 is what 0 is here: all of them.
    if (sampled && parameters.has("top_k")) out.topK(Math.max(0, parameters.get("top_k").getAsInt()));
    copy(parameters, out, "repetition_penalty", "repetition_penalty", "presence_penalty", "presence_penalty", "frequency_penalty",
        "frequency_penalty", "seed", "seed", "ignore_eos", "ignore_eos", "ignore_eos_token", "ignore_eos", "min_new_tokens",
        "min_tokens", "min_tokens", "min_tokens");
    stops(parameters.get("stop_sequences"), out);
    if (parameters.has("stop_token_ids") && parameters.get("stop_token_ids").isJsonArray()) {
      StringJoiner ids = new StringJoiner(",");
      parameters.getAsJsonArray("stop_token_ids").forEach(id -> ids.add(id.getAsString()));
      out.set("stop_tokens", ids.toString());
    }
    return out.logprobs(0);
  }

  private Options chatOptions() {
    Options out = new Options();
    copy(body, out, "max_tokens", "max_tokens", "max_completion_tokens", "max_tokens", "temperature", "temperature", "top_p", "top_p", "n",
        "samples", "seed", "seed", "presence_penalty", "presence_penalty", "frequency_penalty", "frequency_penalty", "ignore_eos",
        "ignore_eos");
    if (body.has("tools") && !text(body, "tool_choice", "auto").equals("none")) out.set("tools", body.get("tools").toString());
    if (bool(body, "logprobs", false)) out.logprobs(body.has("top_logprobs") ? body.get("top_logprobs").getAsInt() : 0);
    if (body.has("logit_bias")) {
      StringJoiner biases = new StringJoiner(",");
      for (Map.Entry<String, JsonElement> bias : body.getAsJsonObject("logit_bias").entrySet()) {
        biases.add(bias.getKey() + ":" + bias.getValue().getAsString());
      }
      out.set("logit_bias", biases.toString());
    }
    stops(body.get("stop"), out);
    return out;
  }

  /** {@code keys}: theirs and ours, in turn. */
  private static void copy(JsonObject from, Options to, String... keys) {
    for (int i = 0; i < keys.length; i += 2) {
      if (from.has(keys[i]) && !from.get(keys[i]).isJsonNull()) to.set(keys[i + 1], from.get(keys[i]).getAsString());
    }
  }

  private static void stops(JsonElement stops, Options to) {
    if (stops == null || stops.isJsonNull()) return;
    JsonArray all = new JsonArray();
    if (stops.isJsonArray()) all = stops.getAsJsonArray();
    else all.add(stops);
    all.forEach(stop -> to.stop(stop.getAsString()));
  }

  static boolean bool(JsonObject from, String key, boolean otherwise) {
    return from.has(key) && !from.get(key).isJsonNull() ? from.get(key).getAsBoolean() : otherwise;
  }

  static String text(JsonObject from, String key, String otherwise) {
    return from.has(key) && from.get(key).isJsonPrimitive() ? from.get(key).getAsString() : otherwise;
  }
}

package ai.plait.serve;

import ai.plait.Finish;
import ai.plait.Request;
import ai.plait.Token;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;

/** The reply to {"inputs": ...}. */
final class GenerateReply extends Reply {
  private final boolean details;
  private final PromptTokens prompt;
  private final boolean full;
  private final boolean tgi;
  private final List<Output> outputs = new ArrayList<>();

  private static final class Output {
    final String input;
    final StringBuilder text = new StringBuilder();
    final JsonArray tokens = new JsonArray();
    String finish = "length";

    Output(String input) {
      this.input = input;
    }
  }

  /** {@code prompt}: details of the inputs' tokens; null if not requested. */
  GenerateReply(List<String> inputs, Query query, boolean details, PromptTokens prompt, boolean full, boolean tgi) {
    super(query.stream(), query.sse());
    this.details = details;
    this.prompt = prompt;
    this.full = full;
    this.tgi = tgi;
    for (String input : inputs) outputs.add(new Output(input));
  }

  @Override
  JsonObject piece(int input, Token token) {
    Output output = outputs.get(input);
    output.text.append(token.text());
    JsonObject piece = new JsonObject();
    if (tgi && token.id() >= 0) piece.addProperty("index", output.tokens.size());
    if (token.id() >= 0) {
      JsonObject one = new JsonObject();
      one.addProperty("id", token.id());
      one.addProperty("text", token.text());
      one.addProperty(logprob(), token.logprob());
      output.tokens.add(one);
      piece.add("token", one);
    }
    if (token.finish() == Finish.NONE) return piece;
    output.finish = nameOf(token.finish());
    piece.addProperty("generated_text", text(output));
    piece.add("details", details(output, false));
    return piece;
  }

  @Override
  Object whole(List<Request> requests) {
    JsonArray all = new JsonArray();
    for (Output output : outputs) {
      JsonObject one = new JsonObject();
      one.addProperty("generated_text", text(output));
      if (details) one.add("details", details(output, true));
      if (prompt != null) one.getAsJsonObject("details").add("prefill", prompt.of(output.input, logprob()));
      all.add(one);
    }
    return all.size() == 1 && !tgi ? all.get(0) : all;
  }

  @Override
  JsonObject failure(String message, int code) {
    JsonObject out = super.failure(message, code);
    if (!streams()) return out;
    JsonObject token = new JsonObject();
    token.addProperty("id", -1);
    token.addProperty("text", "");
    token.addProperty(logprob(), -1);
    out.add("token", token);
    out.addProperty("generated_text", "");
    JsonObject ending = new JsonObject();
    ending.addProperty("finish_reason", "error");
    out.add("details", ending);
    return out;
  }

  /** Text Generation Inference spells it without the line. */
  private String logprob() {
    return tgi ? "logprob" : "log_prob";
  }

  private String text(Output output) {
    return full ? output.input + output.text : output.text.toString();
  }

  private static JsonObject details(Output output, boolean tokens) {
    JsonObject out = new JsonObject();
    out.addProperty("finish_reason", output.finish);
    out.addProperty("generated_tokens", output.tokens.size());
    out.addProperty("inputs", output.input);
    if (tokens) out.add("tokens", output.tokens);
    return out;
  }

  private static String nameOf(Finish finish) {
    switch (finish) {
      case EOS:
        return "eos_token";
      case STOP:
        return "stop_sequence";
      case LENGTH:
        return "length";
      default:
        return "error";
    }
  }
}

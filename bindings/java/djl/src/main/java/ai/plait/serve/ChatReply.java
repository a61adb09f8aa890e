package ai.plait.serve;

import ai.plait.Finish;
import ai.plait.Request;
import ai.plait.Token;
import ai.plait.Usage;
import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.util.List;
import java.util.TreeMap;
import java.util.UUID;

/** The reply to {"messages": ...}. */
final class ChatReply extends Reply {
  private final String id = "chatcmpl-" + UUID.randomUUID();
  private final long created = System.currentTimeMillis() / 1000;
  private final String model;
  private final boolean logprobs;
  private final TreeMap<Integer, Choice> choices = new TreeMap<>();

  private static final class Choice {
    final StringBuilder text = new StringBuilder();
    final JsonArray tokens = new JsonArray();
    String finish = "length";
  }

  ChatReply(boolean stream, boolean sse, String model, boolean logprobs) {
    super(stream, sse);
    this.model = model;
    this.logprobs = logprobs;
  }

  @Override
  JsonObject piece(int input, Token token) {
    boolean first = !choices.containsKey(token.sample());
    Choice choice = choices.computeIfAbsent(token.sample(), sample -> new Choice());
    choice.text.append(token.text());
    JsonObject choiceObject = new JsonObject();
    JsonObject delta = new JsonObject();
    if (first) delta.addProperty("role", "assistant");
    delta.addProperty("content", token.text());
    choiceObject.addProperty("index", token.sample());
    choiceObject.add("delta", delta);
    choiceObject.add("logprobs", JsonNull.INSTANCE);
    if (logprobs && token.id() >= 0) {
      JsonObject one = logprob(token);
      choice.tokens.add(one);
      JsonArray ones = new JsonArray();
      ones.add(one);
      choiceObject.add("logprobs", content(ones));
    }
    if (token.finish() != Finish.NONE) choice.finish = nameOf(token.finish());
    if (token.finish() == Finish.NONE) choiceObject.add("finish_reason", JsonNull.INSTANCE);
    else choiceObject.addProperty("finish_reason", choice.finish);
    JsonArray list = new JsonArray();
    list.add(choiceObject);
    return envelope("chat.completion.chunk", list);
  }

  @Override
  Object whole(List<Request> requests) {
    JsonArray list = new JsonArray();
    choices.forEach((sample, choice) -> {
      JsonObject message = new JsonObject();
      message.addProperty("role", "assistant");
      message.addProperty("content", choice.text.toString());
      JsonObject one = new JsonObject();
      one.addProperty("index", sample);
      one.add("message", message);
      one.add("logprobs", logprobs ? content(choice.tokens) : JsonNull.INSTANCE);
      one.addProperty("finish_reason", choice.finish);
      list.add(one);
    });
    JsonObject out = envelope("chat.completion", list);
    Usage usage = requests.get(0).usage();
    JsonObject counts = new JsonObject();
    counts.addProperty("prompt_tokens", usage.getPromptTokens());
    counts.addProperty("completion_tokens", usage.getNewTokens());
    counts.addProperty("total_tokens", usage.getPromptTokens() + usage.getNewTokens());
    out.add("usage", counts);
    return out;
  }

  @Override
  String ending() {
    return "data: [DONE]\n\n";
  }

  private JsonObject envelope(String object, JsonArray list) {
    JsonObject out = new JsonObject();
    out.addProperty("id", id);
    out.addProperty("object", object);
    out.addProperty("created", created);
    out.addProperty("model", model);
    out.add("choices", list);
    return out;
  }

  private static JsonObject content(JsonArray tokens) {
    JsonObject out = new JsonObject();
    out.add("content", tokens);
    return out;
  }

  private static JsonObject logprob(Token token) {
    JsonObject out = new JsonObject();
    out.addProperty("token", token.text());
    out.addProperty("logprob", token.logprob());
    JsonArray top = new JsonArray();
    for (int i = 0; i < token.topIds().length; ++i) {
      JsonObject one = new JsonObject();
      one.addProperty("id", token.topIds()[i]);
      one.addProperty("logprob", token.topLogprobs()[i]);
      top.add(one);
    }
    out.add("top_logprobs", top);
    return out;
  }

  private static String nameOf(Finish finish) {
    switch (finish) {
      case EOS:
      case STOP:
        return "stop";
      case LENGTH:
        return "length";
      default:
        return "error";
    }
  }
}

package ai.plait.serve;

import ai.plait.Request;
import ai.plait.Token;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.util.List;

/** Makes a reply of tokens: pieces as they come, or one at the end. */
public abstract class Reply {
  private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

  private final boolean stream;
  private final boolean sse;

  Reply(boolean stream, boolean sse) {
    this.stream = stream;
    this.sse = sse;
  }

  public final String contentType() {
    return !stream ? "application/json" : sse ? "text/event-stream" : "application/jsonlines";
  }

  /** What is sent for a token of input number {@code input}; null: nothing. */
  public final String token(int input, Token token) {
    JsonObject piece = piece(input, token);
    return stream && piece != null ? framed(piece) : null;
  }

  /** What is sent at the end. */
  public final String end(List<Request> requests) {
    String last = stream ? ended() : "";
    return stream ? last : GSON.toJson(whole(requests));
  }

  /** What is sent instead of the rest. */
  public final String error(String message, int code) {
    JsonObject out = failure(message, code);
    return stream ? framed(out) + ended() : GSON.toJson(out);
  }

  /** Notes a token; as JSON for those who stream. */
  abstract JsonObject piece(int input, Token token);

  /** The reply of those who do not. */
  abstract Object whole(List<Request> requests);

  /** Errors in streams have their own format if the schema specifies one. */
  JsonObject failure(String message, int code) {
    JsonObject out = new JsonObject();
    out.addProperty("error", message);
    out.addProperty("code", code);
    return out;
  }

  final boolean streams() {
    return stream;
  }

  /** What follows the last piece. */
  String ending() {
    return "";
  }

  private String ended() {
    return sse ? ending() : "";
  }

  private String framed(JsonObject piece) {
    return sse ? "data: " + GSON.toJson(piece) + "\n\n" : GSON.toJson(piece) + "\n";
  }
}

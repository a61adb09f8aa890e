package ai.plait.djl;

import ai.djl.modality.Input;
import ai.djl.modality.Output;
import ai.djl.ndarray.BytesSupplier;
import ai.plait.PlaitException;
import ai.plait.Request;
import ai.plait.serve.Exchange;
import ai.plait.serve.Query;
import ai.plait.serve.Reply;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Bodies of both schemas of DJL's large-model serving. The reply is pushed as it comes, so that a worker is free at once and many clients
 * stream on few cores.
 */
final class ServingTranslator extends OneByOne<Input, Output> {
  private final PlaitModel model;

  ServingTranslator(PlaitModel model) {
    this.model = model;
  }

  @Override
  Output answer(Input input) {
    BytesSupplier data = input.getData();
    if (data == null) return failed("there is no body", 400);
    Query query;
    List<Request> requests;
    try {
      query = new Query(data.getAsString(), input.getProperty("Accept", input.getProperty("accept", "")), model.options());
      requests = query.submit(model.generator());
    } catch (PlaitException error) {
      return failed(error.hint().isEmpty() ? error.getMessage() : error.getMessage() + " (" + error.hint() + ")",
          Exchange.codeOf(error.status()));
    } catch (IllegalArgumentException | IllegalStateException | ClassCastException | UnsupportedOperationException error) {
      return failed(String.valueOf(error.getMessage()), 400);
    }
    Reply reply = model.replyTo(query);
    ClientReply body = new ClientReply(input);
    model.start(new Exchange(requests, reply, (piece, last) -> body.appendContent(piece.getBytes(StandardCharsets.UTF_8), last), body,
        model.options().limit()));
    Output output = new Output();
    output.addProperty("Content-Type", reply.contentType());
    output.add("data", body);
    return output;
  }

  private static Output failed(String message, int code) {
    JsonObject said = new JsonObject();
    said.addProperty("error", message);
    said.addProperty("code", code);
    Output output = new Output(code, message);
    output.addProperty("Content-Type", "application/json");
    output.add("data", BytesSupplier.wrap(said.toString()));
    return output;
  }
}

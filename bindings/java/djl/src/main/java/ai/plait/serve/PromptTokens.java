package ai.plait.serve;

import ai.plait.Generator;
import ai.plait.Options;
import ai.plait.Request;
import ai.plait.Tensor;
import ai.plait.Tokenizer;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.function.Supplier;

/** The tokens of prompts with their log-probabilities, which "decoder_input_details" asks for. */
final class PromptTokens {
  private final Generator generator;
  private final Supplier<Tokenizer> tokenizers;

  PromptTokens(Generator generator, Supplier<Tokenizer> tokenizers) {
    this.generator = generator;
    this.tokenizers = tokenizers;
  }

  /** All but the first, before which there is nothing that it could be likely after. Waits for a step that scores the prompt. */
  JsonArray of(String prompt, String logprob) {
    JsonArray out = new JsonArray();
    try (Tokenizer tokenizer = tokenizers.get(); Options score = new Options().kind("score")) {
      int[] ids = tokenizer.encode(prompt);
      try (Request request = generator.submit(ids, score); Tensor logits = request.result()) {
        long row = logits.dims()[1] * Float.BYTES;
        for (int i = 1; i < ids.length; ++i) {
          JsonObject one = new JsonObject();
          one.addProperty("id", ids[i]);
          one.addProperty("text", tokenizer.decode(new int[] {ids[i]}, false));
          FloatBuffer values = logits.buffer((i - 1) * row, row).order(ByteOrder.nativeOrder()).asFloatBuffer();
          one.addProperty(logprob, logprob(values, ids[i]));
          out.add(one);
        }
      }
    }
    return out;
  }

  private static float logprob(FloatBuffer logits, int id) {
    float largest = Float.NEGATIVE_INFINITY;
    for (int i = 0; i < logits.limit(); ++i) largest = Math.max(largest, logits.get(i));
    double sum = 0;
    for (int i = 0; i < logits.limit(); ++i) sum += Math.exp(logits.get(i) - largest);
    return (float) (logits.get(id) - largest - Math.log(sum));
  }
}

package ai.plait.djl;

import ai.plait.Options;
import ai.plait.Request;
import java.util.Map;

/** A prompt, and its tokens as they come. Arguments of the Criteria are options of requests: optArgument("plait.temperature", 0). */
final class PromptTranslator extends OneByOne<String, Request> {
  private final PlaitModel model;
  private final Options options = new Options();

  PromptTranslator(PlaitModel model, Map<String, ?> arguments) {
    this.model = model;
    arguments.forEach((key, value) -> {
      if (key.startsWith("plait.")) options.set(key.substring("plait.".length()), value);
    });
  }

  @Override
  Request answer(String prompt) {
    return model.generator().submit(prompt, options);
  }
}

package ai.plait.djl;

import ai.djl.ndarray.NDList;
import ai.djl.translate.NoBatchifyTranslator;
import ai.djl.translate.TranslatorContext;

/** The whole work in processInput: a request is submitted, and what answers it is handed on. Requests batch inside of Plait. */
abstract class OneByOne<I, O> implements NoBatchifyTranslator<I, O> {
  private static final String ANSWER = "plait.answer";

  abstract O answer(I input) throws Exception;

  @Override
  public final NDList processInput(TranslatorContext context, I input) throws Exception {
    context.setAttachment(ANSWER, answer(input));
    return new NDList();
  }

  @Override
  @SuppressWarnings("unchecked")
  public final O processOutput(TranslatorContext context, NDList list) {
    return (O) context.getAttachment(ANSWER);
  }
}

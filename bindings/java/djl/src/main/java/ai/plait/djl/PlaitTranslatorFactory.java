package ai.plait.djl;

import ai.djl.Model;
import ai.djl.modality.Input;
import ai.djl.modality.Output;
import ai.djl.translate.TranslateException;
import ai.djl.translate.Translator;
import ai.djl.translate.TranslatorFactory;
import ai.djl.util.Pair;
import ai.plait.Request;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;

/**
 * Translators for (Input, Output), which DJL Serving uses; (String, Request), a prompt and its tokens; and any types that are written as
 * JSON of one of the two schemas and read by a static {@code fromJson(String)}, or {@code fromJson(Iterator<String>)} for streams: those
 * of ai.djl.genai do.
 */
public final class PlaitTranslatorFactory implements TranslatorFactory {
  @Override
  public Set<Pair<Type, Type>> getSupportedTypes() {
    Set<Pair<Type, Type>> out = new HashSet<>();
    out.add(new Pair<>(Input.class, Output.class));
    out.add(new Pair<>(String.class, Request.class));
    return out;
  }

  @Override
  public boolean isSupported(Class<?> input, Class<?> output) {
    return getSupportedTypes().contains(new Pair<Type, Type>(input, output)) || reader(output, Iterator.class) != null
        || reader(output, String.class) != null;
  }

  @Override
  @SuppressWarnings("unchecked")
  public <I, O> Translator<I, O> newInstance(Class<I> input, Class<O> output, Model model, Map<String, ?> arguments)
      throws TranslateException {
    if (!(model instanceof PlaitModel)) throw new IllegalArgumentException("the model is of the engine " + model.getClass() + ", not Plait");
    PlaitModel own = (PlaitModel) model;
    if (input == Input.class && output == Output.class) return (Translator<I, O>) new ServingTranslator(own);
    if (input == String.class && output == Request.class) return (Translator<I, O>) new PromptTranslator(own, arguments);
    Method stream = reader(output, Iterator.class);
    Method whole = reader(output, String.class);
    if (stream == null && whole == null) throw new IllegalArgumentException("no translator from " + input + " to " + output);
    return new JsonTranslator<>(own, output, stream, whole);
  }

  private static Method reader(Class<?> type, Class<?> from) {
    try {
      Method method = type.getMethod("fromJson", from);
      return Modifier.isStatic(method.getModifiers()) ? method : null;
    } catch (NoSuchMethodException error) {
      return null;
    }
  }
}

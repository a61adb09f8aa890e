// OpenAI's client for Java. Prints one "NAME TAB VALUE" a line: what each kind of call gave.
//
// usage: java -cp JARS OpenAiClient.java ADDRESS MODEL

import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.JsonValue;
import com.openai.core.http.StreamResponse;
import com.openai.errors.BadRequestException;
import com.openai.errors.NotFoundException;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionToolChoiceOption;
import com.openai.models.completions.Completion;
import com.openai.models.completions.CompletionCreateParams;
import com.openai.models.embeddings.EmbeddingCreateParams;
import com.openai.models.responses.Response;
import com.openai.models.responses.ResponseCreateParams;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

public final class OpenAiClient {
  public enum Colour { red, blue }

  /** An answer that a schema describes. */
  public static final class Weather {
    public Colour colour;
    public boolean warm;
  }

  private static String model;

  private static ChatCompletionCreateParams.Builder ask() {
    return ChatCompletionCreateParams.builder().model(model).addUserMessage("a").temperature(0.0).maxCompletionTokens(12L);
  }

  private static void print(String name, Object value) {
    System.out.println(name + "\t" + String.valueOf(value).replace("\\", "\\\\").replace("\n", "\\n"));
  }

  private static String textOf(StreamResponse<ChatCompletionChunk> stream) {
    StringBuilder out = new StringBuilder();
    stream.stream().flatMap(part -> part.choices().stream()).forEach(choice -> choice.delta().content().ifPresent(out::append));
    return out.toString();
  }

  public static void main(String[] words) {
    int status = 0;
    try {
      run(words);
    } catch (Throwable error) {
      error.printStackTrace();
      status = 1;
    }
    System.exit(status);  // the client's threads live on
  }

  private static void run(String[] words) {
    model = words[1];
    OpenAIClient client = OpenAIOkHttpClient.builder().baseUrl(words[0] + "/v1").apiKey("none").maxRetries(0).build();

    ChatCompletion whole = client.chat().completions().create(ask().logprobs(true).topLogprobs(2L).build());
    ChatCompletion.Choice first = whole.choices().get(0);
    print("chat", first.message().content().get());
    print("logprobs", first.logprobs().get().content().get().stream().map(one -> one.topLogprobs().size()).collect(Collectors.toSet()));
    print("tokens", whole.usage().get().completionTokens());
    try (StreamResponse<ChatCompletionChunk> stream = client.chat().completions().createStreaming(ask().build())) {
      print("stream", textOf(stream));
    }
    CompletableFuture<ChatCompletion> later = client.async().chat().completions().create(ask().build());
    print("async", later.join().choices().get(0).message().content().get());

    Weather structured = client.chat().completions().create(ask().maxCompletionTokens(400L).responseFormat(Weather.class).build())
        .choices().get(0).message().content().get();
    print("structured", structured.colour + " " + structured.warm);
    Weather called = client.chat().completions().create(ask().maxCompletionTokens(400L).addTool(Weather.class)
        .toolChoice(ChatCompletionToolChoiceOption.Auto.REQUIRED).parallelToolCalls(false).build())
        .choices().get(0).message().toolCalls().get().get(0).asFunction().function().arguments(Weather.class);
    print("called", called.colour + " " + called.warm);

    Response response = client.responses().create(ResponseCreateParams.builder().model(model).input("a").temperature(0.0)
        .maxOutputTokens(12L).build());
    print("response", response.output().stream().flatMap(item -> item.message().stream())
        .flatMap(message -> message.content().stream()).map(part -> part.asOutputText().text()).collect(Collectors.joining()));
    print("embedding", client.embeddings().create(EmbeddingCreateParams.builder().model(model).input("a").build())
        .data().get(0).embedding().size());
    print("models", client.models().list().data().get(0).id());

    try {
      client.chat().completions().create(ask().model("other").build());
    } catch (NotFoundException error) {
      print("notFound", error.statusCode() + " " + error.code().get() + " " + error.param().get());
    }
    try {
      client.chat().completions().create(ask().temperature(-1.0).build());
    } catch (BadRequestException error) {
      print("badRequest", error.statusCode() + " " + error.param().get());
    }
    CompletionCreateParams endless = CompletionCreateParams.builder().model(model).prompt("a").maxTokens(3000L).n(8L)
        .putAdditionalBodyProperty("ignore_eos", JsonValue.from(true)).build();
    try (StreamResponse<Completion> stream = client.completions().createStreaming(endless)) {
      print("left", stream.stream().findFirst().isPresent());
    }
    client.close();
  }
}

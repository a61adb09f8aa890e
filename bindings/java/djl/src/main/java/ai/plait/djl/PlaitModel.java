package ai.plait.djl;

import ai.djl.BaseModel;
import ai.djl.Device;
import ai.djl.MalformedModelException;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.DataType;
import ai.djl.nn.Blocks;
import ai.plait.Generator;
import ai.plait.PlaitException;
import ai.plait.Status;
import ai.plait.serve.Exchange;
import ai.plait.serve.Query;
import ai.plait.serve.Reply;
import ai.plait.serve.ServingOptions;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A model with its generator. Thread-safe: all workers of a server share it. */
public final class PlaitModel extends BaseModel {
  private static final Logger LOGGER = LoggerFactory.getLogger(PlaitModel.class);
  /** A thread a reply: pulling waits. */
  private static final ExecutorService THREADS = Executors.newCachedThreadPool(work -> {
    Thread thread = new Thread(work, "plait-reply");
    thread.setDaemon(true);
    return thread;
  });

  private final Set<Exchange> running = ConcurrentHashMap.newKeySet();
  private ServingOptions options = new ServingOptions(Collections.emptyMap(), 1);
  private ai.plait.Model model;
  private volatile Generator generator;

  PlaitModel(String name, NDManager manager) {
    super(name);
    this.manager = manager;
    dataType = DataType.FLOAT32;
  }

  @Override
  public void load(Path path, String prefix, Map<String, ?> given) throws IOException, MalformedModelException {
    setModelDir(path);
    wasLoaded = true;
    Device device = manager.getDevice();
    int devices = device instanceof Device.MultiDevice ? ((Device.MultiDevice) device).getDevices().size() : 1;
    try {
      options = new ServingOptions(given == null ? Collections.emptyMap() : given, devices);
      options.formatter();
      model = ai.plait.Model.open(path.toFile().isFile() ? path : modelDir);
      generator = model.generator(options.generator(model, modelDir));
      generator.await(null);
    } catch (PlaitException | IllegalArgumentException error) {
      close();
      if (error instanceof PlaitException && ((PlaitException) error).status() == Status.NOT_FOUND) {
        throw new FileNotFoundException(error.toString());
      }
      throw new MalformedModelException(error.toString(), error);
    }
    block = Blocks.identityBlock();
    LOGGER.info("{} is loaded; by rank: {}", getName(), generator.ranks());
  }

  /** Requests that run end with an error. */
  @Override
  public void close() {
    Generator ending = generator;
    if (ending != null) ending.close();
    if (model != null) model.close();
    running.forEach(Exchange::unload);
    super.close();
  }

  ServingOptions options() {
    return options;
  }

  Generator generator() {
    if (generator == null) throw new IllegalStateException("the model " + getName() + " was not loaded");
    return generator;
  }

  Reply replyTo(Query query) {
    return query.reply(generator(), model::tokenizer);
  }

  /** Runs it asynchronously; {@link #close} ends it. */
  void start(Exchange exchange) {
    running.add(exchange);
    if (generator.isClosed()) exchange.unload();  // it was closed in between
    THREADS.execute(() -> {
      try {
        exchange.run();
      } finally {
        running.remove(exchange);
      }
    });
  }
}

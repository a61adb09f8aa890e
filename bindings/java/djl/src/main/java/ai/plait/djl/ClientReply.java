package ai.plait.djl;

import ai.djl.inference.streaming.PublisherBytesSupplier;
import ai.djl.modality.Input;
import ai.plait.serve.Exchange;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/**
 * A reply that is pushed to a client, and knows when that has left. DJL Serving reports that only until it has sent a reply's headers; but what
 * it subscribes holds the context of the client's connection, by Netty's interface, and that is asked where it is found.
 */
final class ClientReply extends PublisherBytesSupplier implements Exchange.Client {
  private static final String CONTEXT = "io.netty.channel.ChannelHandlerContext";

  private final Input input;
  private volatile BooleanSupplier connected;

  ClientReply(Input input) {
    this.input = input;
  }

  @Override
  public CompletableFuture<Void> subscribe(Consumer<byte[]> subscriber) {
    connected = connectionOf(subscriber);
    return super.subscribe(subscriber);
  }

  @Override
  public boolean hasLeft() {
    BooleanSupplier connection = connected;
    return input.isCancelled() || connection != null && !connection.getAsBoolean();
  }

  @Override
  public boolean isWatched() {
    return connected != null;
  }

  /** Null if unknown. */
  private static BooleanSupplier connectionOf(Object subscriber) {
    try {
      for (Field field : subscriber.getClass().getDeclaredFields()) {
        Object held = field.trySetAccessible() ? field.get(subscriber) : null;
        Class<?> context = held == null ? null : contextOf(held.getClass());
        if (context == null) continue;
        Method channel = context.getMethod("channel");
        Method active = channel.getReturnType().getMethod("isActive");
        Object connection = channel.invoke(held);
        return () -> {
          try {
            return (boolean) active.invoke(connection);
          } catch (ReflectiveOperationException error) {
            return true;
          }
        };
      }
    } catch (ReflectiveOperationException error) {
      // Another Netty than any that is known.
    }
    return null;
  }

  /** The interface among those of a class, or null. */
  private static Class<?> contextOf(Class<?> type) {
    for (; type != null; type = type.getSuperclass()) {
      for (Class<?> one : type.getInterfaces()) {
        if (one.getName().equals(CONTEXT)) return one;
      }
    }
    return null;
  }
}

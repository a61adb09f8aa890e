package bench;

import ai.plait.DType;
import ai.plait.Generator;
import ai.plait.Model;
import ai.plait.Options;
import ai.plait.Request;
import ai.plait.Tensor;
import ai.plait.Token;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.infra.Blackhole;

/** pull.c in Java, by JMH. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Pull {
  private static final int TOKENS = 480;

  /** A request whose tokens are all there. */
  @State(Scope.Thread)
  public static class Ended {
    private final Model model = Model.open(Path.of(System.getProperty("plait.model")));
    private final Generator generator = model.generator(new Options().threads(1).set("cache_bytes", "4M"));
    private final Options greedy = new Options().ignoreEos(true).maxTokens(TOKENS).temperature(0);
    private Request request;

    @Setup(Level.Invocation)
    public void generate() throws InterruptedException {
      request = generator.submit(new int[] {5, 6, 7}, greedy);
      while (request.usage().getNewTokens() < TOKENS) Thread.sleep(20);
    }

    @TearDown(Level.Invocation)
    public void close() {
      request.close();
    }

    @TearDown(Level.Trial)
    public void end() {
      generator.close();
      model.close();
    }
  }

  @Benchmark
  @OperationsPerInvocation(TOKENS)
  public void token(Ended ended, Blackhole hole) {
    for (Token token = ended.request.poll(null); token != null; token = ended.request.poll(null)) hole.consume(token);
  }

  /** What only the requests allocate, by token. */
  @Benchmark
  @OperationsPerInvocation(TOKENS)
  public void nothing(Ended ended) {}

  /** 1 MiB in and out. */
  @State(Scope.Thread)
  public static class Bytes {
    private final ByteBuffer from = ByteBuffer.allocateDirect(1 << 20);
  }

  @Benchmark
  public byte[] tensor(Bytes bytes) {
    try (Tensor tensor = Tensor.copyOf(DType.U8, new long[] {1 << 20}, bytes.from)) {
      return tensor.toBytes();
    }
  }
}

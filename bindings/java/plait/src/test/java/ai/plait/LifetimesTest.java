package ai.plait;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Closing in any order, from any thread, or never. */
class LifetimesTest {
  private static final int SECONDS = Integer.getInteger("plait.seconds", 3);
  private static final int[] PROMPT = Lists.ids("prompt");
  private static final int[] GREEDY = Lists.ids("greedy");

  @Test
  void anyOrder() {
    for (int order = 0; order < 6; ++order) {
      Model model = Model.open(Lists.model());
      Generator generator = model.generator(Lists.small());
      Request request = generator.submit(PROMPT, Lists.greedy(16));
      List<NativeObject> rest = new ArrayList<>(Arrays.asList(model, generator, request));
      NativeObject first = rest.remove(order % 3);
      if (order >= 3) Collections.reverse(rest);
      first.close();
      if (first != request) assertArrayEquals(GREEDY, Lists.pull(request));
      rest.forEach(NativeObject::close);
      rest.forEach(NativeObject::close);
      first.close();
      assertEquals(Status.CLOSED, assertThrows(PlaitException.class, model::info).status());
    }
  }

  @Test
  void fromAnotherThreadWhileItWaits() throws InterruptedException {
    try (Model model = Model.open(Lists.model()); Generator generator = model.generator(Lists.small())) {
      for (int round = 0; round < 20; ++round) {
        Request request = generator.submit(PROMPT, Lists.greedy(16).hostSampling(true));
        request.poll(null);
        int pause = round % 5;
        Thread other = new Thread(() -> {
          sleep(pause);
          request.close();
        });
        other.start();
        assertEquals(Status.CLOSED, assertThrows(PlaitException.class, () -> {
          while (request.poll(null) != null) {
          }
        }).status());
        other.join();
      }
    }
  }

  @Test
  void anInterruptEndsAWait() throws InterruptedException {
    try (Model model = Model.open(Lists.model()); Generator generator = model.generator(Lists.small());
        Request request = generator.submit(PROMPT, Lists.greedy(16).hostSampling(true))) {
      request.poll(null);
      Thread waiting = Thread.currentThread();
      Thread other = new Thread(() -> {
        sleep(20);
        waiting.interrupt();
      });
      other.start();
      assertEquals(Status.CANCELLED, assertThrows(PlaitException.class, () -> request.poll(null)).status());
      assertTrue(Thread.interrupted());
      other.join();
    }
  }

  @Test
  void forgotten() throws InterruptedException {
    for (int round = 0; round < 10; ++round) {
      Model.open(Lists.model()).generator(Lists.small()).submit(PROMPT, Lists.greedy(400)).poll(null);
    }
    for (int i = 0; i < 3; ++i) {
      System.gc();
      Thread.sleep(20);
    }
  }

  @Test
  void aBufferKeepsItsTensor() {
    ByteBuffer buffer;
    try (Tensor tensor = Tensor.of(new float[] {1, 2, 3}, 3)) {
      buffer = tensor.buffer();
      buffer.putFloat(0, 7);
      assertArrayEquals(new float[] {7, 2, 3}, tensor.floats());
    }
    System.gc();
    assertEquals(7f, buffer.getFloat(0));
    // Closed ones whose buffers were forgotten come back, though nothing on the heap tells.
    for (int i = 0; i < 40; ++i) {
      try (Tensor large = Tensor.copyOf(DType.U8, new long[] {16 << 20}, ByteBuffer.allocateDirect(16 << 20))) {
        large.buffer();
      }
    }
  }

  /** Eight looks at what stays, each behind as many rounds: 2,000 in all in a soak of a minute. */
  @Test
  void openAndClose() throws IOException {
    int rounds = Math.min(250, 5 * SECONDS);
    List<Long> resident = new ArrayList<>();
    while (resident.size() < 8) {
      for (int round = 0; round < rounds; ++round) {
        try (Model model = Model.open(Lists.model()); Generator generator = model.generator(Lists.small());
            Request request = generator.submit(PROMPT, Lists.greedy(4))) {
          request.text();
        }
      }
      System.gc();
      resident.add(residentBytes() >> 20);
    }
    System.out.println(8 * rounds + " rounds, MiB resident: " + resident);
    long first = Math.max(resident.get(0), resident.get(1));
    long last = Math.min(resident.get(6), resident.get(7));
    assertTrue(last <= first + first / 20, 8 * rounds + " rounds, MiB resident: " + resident);
  }

  @Test
  void manyThreads() throws InterruptedException {
    long end = System.nanoTime() + SECONDS * 1_000_000_000L;
    AtomicInteger wrong = new AtomicInteger();
    AtomicInteger done = new AtomicInteger();
    try (Model model = Model.open(Lists.model()); Generator generator = model.generator(Lists.small().set("queue", 1000))) {
      List<Thread> threads = new ArrayList<>();
      for (int number = 0; number < 200; ++number) {
        Random random = new Random(number);
        threads.add(new Thread(null, () -> {
          do {
            try (Request request = generator.submit(PROMPT, Lists.greedy(16))) {
              if (random.nextBoolean()) {
                request.cancel();
                request.text();
              } else if (!Arrays.equals(GREEDY, Lists.pull(request))) {
                wrong.incrementAndGet();
              }
            }
            done.incrementAndGet();
          } while (System.nanoTime() < end);
        }, "client-" + number, 256 << 10));
      }
      threads.forEach(Thread::start);
      for (Thread thread : threads) thread.join();
    }
    assertEquals(0, wrong.get());
    assertTrue(done.get() >= 200);
  }

  @Test
  void publisher() throws InterruptedException, ExecutionException {
    try (Model model = Model.open(Lists.model()); Generator generator = model.generator(Lists.small().running(64))) {
      List<Collected> clients = new ArrayList<>();
      for (int i = 0; i < 64; ++i) {
        Request request = generator.submit(PROMPT, Lists.greedy(16));
        Collected client = new Collected(request, i % 4 == 3 ? 2 : Integer.MAX_VALUE);
        request.publisher().subscribe(client);
        clients.add(client);
      }
      for (Collected client : clients) {
        List<Integer> got = client.done.get();
        assertEquals(Arrays.stream(GREEDY).limit(got.size()).boxed().collect(java.util.stream.Collectors.toList()), got);
        assertEquals(client.most == 2 ? 2 : 16, got.size());
        client.request.close();
      }
      Request once = generator.submit(PROMPT, Lists.greedy(1));
      Flow.Publisher<Token> publisher = once.publisher();
      Collected first = new Collected(once, 9);
      publisher.subscribe(first);
      Collected second = new Collected(once, 9);
      publisher.subscribe(second);
      assertThrows(ExecutionException.class, second.done::get);
      assertEquals(1, first.done.get().size());
    }
  }

  /** A process ends in good order while requests run. */
  @Test
  void exitWhileRunning() throws IOException, InterruptedException {
    Process process = new ProcessBuilder(Paths.get(System.getProperty("java.home"), "bin", "java").toString(), "-Xcheck:jni", "-cp",
        System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
        "-Dplait.fixtures=" + Lists.FIXTURES, "-Dplait.lists=" + System.getProperty("plait.lists"),
        "-Dai.plait.cache=" + System.getProperty("ai.plait.cache"), Leaving.class.getName())
        .redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
    assertEquals("running", said.trim());
  }

  /** The program of exitWhileRunning. */
  static final class Leaving {
    static final List<Request> KEPT = new ArrayList<>();

    public static void main(String[] words) {
      Generator generator = Model.open(Lists.model()).generator(Lists.small());
      for (int i = 0; i < 4; ++i) {
        Request request = generator.submit(PROMPT, Lists.greedy(400));
        request.poll(null);
        KEPT.add(request);
        Thread waiting = new Thread(() -> request.tokens().count());
        waiting.setDaemon(true);
        waiting.start();
      }
      System.out.println("running");
    }
  }

  private static final class Collected implements Flow.Subscriber<Token> {
    final Request request;
    final int most;
    final CompletableFuture<List<Integer>> done = new CompletableFuture<>();
    private final List<Integer> ids = new ArrayList<>();
    private Flow.Subscription subscription;

    Collected(Request request, int most) {
      this.request = request;
      this.most = most;
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
      subscription = given;
      given.request(1);
    }

    @Override
    public void onNext(Token token) {
      if (token.id() >= 0) ids.add(token.id());
      if (ids.size() == most) {
        subscription.cancel();
        done.complete(ids);
      }
      subscription.request(1);
    }

    @Override
    public void onError(Throwable error) {
      done.completeExceptionally(error);
    }

    @Override
    public void onComplete() {
      done.complete(ids);
    }
  }

  private static void sleep(int milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private static long residentBytes() throws IOException {
    for (String line : Files.readAllLines(Paths.get("/proc/self/status"))) {
      if (line.startsWith("VmRSS")) return 1024 * Long.parseLong(line.replaceAll("\\D", ""));
    }
    throw new IOException("no VmRSS");
  }
}

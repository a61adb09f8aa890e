package ai.plait;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;

/** A token that is pulled leaves nothing behind but itself. */
class GarbageTest {
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private static long allocated() {
    return THREADS.getThreadAllocatedBytes(Thread.currentThread().getId());
  }

  @Test
  void ofAToken() {
    int tokens = 400;
    try (Model model = Model.open(Lists.model(), new Options().set("tokenizer", "none")); Generator generator = model.generator(Lists.small())) {
      long least = Long.MAX_VALUE;
      for (int round = 0; round < 5; ++round) {  // the first time classes are loaded
        try (Request request = generator.submit(Lists.ids("prompt"), Lists.greedy(tokens))) {
          request.poll(null);
          long before = allocated();
          int pulled = 0;
          for (Token token = request.poll(null); token != null; token = request.poll(null)) ++pulled;
          least = Math.min(least, (allocated() - before) / pulled);
          assertEquals(tokens - 1, pulled);
        }
      }
      long before = allocated();
      Token[] same = new Token[1000];
      long array = allocated() - before;
      for (int i = 0; i < same.length; ++i) same[i] = new Token(0, i, "", 0, Finish.NONE);
      long token = (allocated() - before - array) / same.length;
      assertTrue(least <= token, least + " bytes a token, which has " + token + " itself");
    }
  }
}

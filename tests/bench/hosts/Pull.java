import ai.plait.*;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/** pull.c in Java. */
class Pull {
  public static void main(String[] words) {
    try (Model model = Model.open(Path.of(words[0]));
        Generator generator = model.generator(new Options().threads(1).set("cache_bytes", "4M"))) {
      Options greedy = new Options().ignoreEos(true).maxTokens(480).temperature(0);
      ByteBuffer from = ByteBuffer.allocateDirect(1 << 20);
      for (int round = 0; round < Integer.parseInt(words[1]); ++round) {
        long pulled;
        try (Request request = generator.submit(new int[] {5, 6, 7}, greedy)) {
          while (request.usage().getNewTokens() < 480) Thread.onSpinWait();
          long begin = System.nanoTime();
          int tokens = 0;
          while (request.poll(null) != null) ++tokens;
          pulled = (System.nanoTime() - begin) / tokens;
        }
        long begin = System.nanoTime();
        try (Tensor tensor = Tensor.copyOf(DType.U8, new long[] {1 << 20}, from)) {
          tensor.toBytes();
        }
        System.out.println(pulled + " " + (System.nanoTime() - begin));
      }
    }
  }
}

package ai.plait;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the native library comes from, and what is said when it cannot be loaded. */
class NativeLibraryTest {
  private static String complaint(String system, String processor, boolean musl) {
    return assertThrows(UnsatisfiedLinkError.class, () -> NativeLibrary.checkPlatform(system, processor, musl)).getMessage();
  }

  @Test
  void wrongMachines() {
    NativeLibrary.checkPlatform("Linux", "amd64", false);
    assertTrue(complaint("Linux", "aarch64", false).contains("aarch64"));
    assertTrue(complaint("Windows 10", "amd64", false).contains("PLAIT_LIBRARY_PATH"));
  }

  @Test
  void whatTheLoaderSays() {
    for (String[] pair : new String[][] {
        {"libplait.so.0: version `GLIBC_2.36' not found", "C library is older"},
        {"wrong ELF class: ELFCLASS32", "for this processor"},
        {"Native Library x already loaded in another classloader", "common parent"}}) {
      String said = NativeLibrary.explained(Paths.get("x"), new UnsatisfiedLinkError(pair[0])).getMessage();
      assertTrue(said.contains(pair[0]) && said.contains(pair[1]), said);
    }
  }

  /** Many at once, as processes would: each finds all files whole, and nothing is left lying about. */
  @Test
  void extractedOnce(@TempDir Path cache) throws IOException, InterruptedException {
    List<Path> found = java.util.Collections.synchronizedList(new ArrayList<>());
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 4; ++i) {
      threads.add(new Thread(() -> {
        try {
          Path directory = NativeLibrary.extracted(cache);
          for (String name : NativeLibrary.FILES) if (Files.size(directory.resolve(name)) > 0) found.add(directory);
        } catch (IOException error) {
          throw new IllegalStateException(error);
        }
      }));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) thread.join();
    assertEquals(4 * NativeLibrary.FILES.length, found.size());
    try (Stream<Path> files = Files.list(cache)) {
      assertEquals(1, files.collect(Collectors.toList()).size());
    }
  }

  /** A second class loader is told what to do. */
  @Test
  void aSecondClassLoader() throws Exception {
    Plait.version();
    URL classes = Plait.class.getProtectionDomain().getCodeSource().getLocation();
    try (URLClassLoader other = new URLClassLoader(new URL[] {classes}, null)) {
      Throwable error = assertThrows(InvocationTargetException.class,
          () -> other.loadClass("ai.plait.Plait").getMethod("version").invoke(null)).getCause();
      assertTrue(error instanceof UnsatisfiedLinkError && error.getMessage().contains("common parent"), String.valueOf(error));
    }
  }
}

package ai.plait;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Locale;
import java.util.Properties;

/**
 * Finds the native library and loads it, once a class loader: in the directory that PLAIT_LIBRARY_PATH names (a variable of the
 * environment, or the system property ai.plait.library_path), otherwise the one in this jar. That is copied to a directory of its version
 * below ai.plait.cache (a property), PLAIT_CACHE_DIR, XDG_CACHE_HOME/plait or ~/.cache/plait.
 */
final class NativeLibrary {
  private static final String WRAPPERS = "libplait_java.so";
  /** The wrappers, and the libraries that they need, in the same directory. */
  static final String[] FILES = {WRAPPERS, "libplait.so.0", "libplait_server.so.0"};

  private static boolean loaded;

  private NativeLibrary() {}

  static synchronized void load() {
    if (loaded) return;
    checkPlatform(System.getProperty("os.name"), System.getProperty("os.arch"), Files.exists(Paths.get("/lib/ld-musl-x86_64.so.1")));
    Path file = directory().resolve(WRAPPERS);
    try {
      System.load(file.toString());
    } catch (UnsatisfiedLinkError error) {
      throw explained(file, error);
    }
    loaded = true;
  }

  /** Throws for a machine that the library is not made for. */
  static void checkPlatform(String system, String processor, boolean musl) {
    if (!system.equals("Linux") || !(processor.equals("amd64") || processor.equals("x86_64"))) {
      throw new UnsatisfiedLinkError("Plait's native library is for Linux on x86-64; this Java runs on " + system + ", " + processor
          + ". Build libplait for it and name its directory in PLAIT_LIBRARY_PATH");
    }
    if (musl && System.getenv("PLAIT_LIBRARY_PATH") == null && !Files.exists(Paths.get("/lib64/ld-linux-x86-64.so.2"))) {
      throw new UnsatisfiedLinkError("Plait's native library needs the GNU C library, and this system has musl. Use an image with "
          + "glibc, or build libplait here and name its directory in PLAIT_LIBRARY_PATH");
    }
  }

  /** What the loader said, with what to do about it. */
  static UnsatisfiedLinkError explained(Path file, UnsatisfiedLinkError error) {
    String said = String.valueOf(error.getMessage());
    String hint = "";
    if (said.contains("already loaded in another classloader")) {
      hint = ". A native library belongs to one class loader: put plait.jar where both find it, in a common parent (the class path of "
          + "the server), instead of into each application";
    } else if (said.contains("GLIBC_")) {
      hint = ". This system's C library is older than the one that the library was built with: build libplait here, and name its "
          + "directory in PLAIT_LIBRARY_PATH";
    } else if (said.contains("wrong ELF class") || said.contains("cannot open shared object file")) {
      hint = ". All of " + String.join(", ", FILES) + " have to be in that directory, for this processor";
    }
    UnsatisfiedLinkError out = new UnsatisfiedLinkError("cannot load " + file + ": " + said + hint);
    out.initCause(error);
    return out;
  }

  private static Path directory() {
    String named = System.getProperty("ai.plait.library_path", System.getenv("PLAIT_LIBRARY_PATH"));
    if (named != null && !named.isEmpty()) return Paths.get(named).toAbsolutePath();
    try {
      return extracted(cache());
    } catch (IOException error) {
      UnsatisfiedLinkError out = new UnsatisfiedLinkError("cannot copy Plait's native library out of the jar: " + error
          + ". Name another directory in PLAIT_CACHE_DIR, or the library's own in PLAIT_LIBRARY_PATH");
      out.initCause(error);
      throw out;
    }
  }

  private static Path cache() {
    String named = System.getProperty("ai.plait.cache", System.getenv("PLAIT_CACHE_DIR"));
    if (named != null && !named.isEmpty()) return Paths.get(named);
    String base = System.getenv("XDG_CACHE_HOME");
    Path parent = base != null && !base.isEmpty() ? Paths.get(base) : Paths.get(System.getProperty("user.home"), ".cache");
    return parent.resolve("plait");
  }

  /** The directory of this version, made by an atomic move: other processes see it whole or not at all. */
  static Path extracted(Path cache) throws IOException {
    Properties about = new Properties();
    String folder = "native/linux-x86_64/";
    try (InputStream stream = NativeLibrary.class.getResourceAsStream(folder + "plait.properties")) {
      if (stream == null) throw new IOException("this jar holds no native library for linux-x86_64");
      about.load(stream);
    }
    Path target = cache.resolve(String.format(Locale.ROOT, "%s-%s", about.getProperty("version"), about.getProperty("digest")));
    if (Files.isDirectory(target)) return target.toAbsolutePath();
    Files.createDirectories(cache);
    Path fresh = Files.createTempDirectory(cache, "new-");
    for (String name : FILES) {
      try (InputStream stream = NativeLibrary.class.getResourceAsStream(folder + name)) {
        if (stream == null) throw new IOException("this jar lacks " + name);
        Files.copy(stream, fresh.resolve(name));
      }
    }
    try {
      Files.move(fresh, target, StandardCopyOption.ATOMIC_MOVE);
    } catch (FileSystemException error) {
      remove(fresh);
      if (!Files.isDirectory(target)) throw error;  // else another process was faster
    }
    return target.toAbsolutePath();
  }

  private static void remove(Path directory) throws IOException {
    for (String name : FILES) Files.deleteIfExists(directory.resolve(name));
    Files.deleteIfExists(directory);
  }
}

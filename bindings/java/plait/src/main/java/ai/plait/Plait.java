package ai.plait;

/** What stands for no object: the version, the options and the ops that there are. */
public final class Plait {
  private Plait() {}

  /** The version of the native library, "0.1.0". Loads it. */
  public static String version() {
    return Native.plait_version();
  }

  /** The name that messages give a status. */
  public static String nameOf(Status status) {
    return Native.plait_status_name(status.code());
  }

  /** All options, as JSON: key, what for, type, default, whether it repeats, doc. */
  public static String options() {
    return Tensor.textOf(Native.plait_options_describe());
  }

  /** What an object of that kind ("generator", "server", ...) would be created with, defaults included, as JSON. */
  public static String values(Options options, String kind) {
    return Tensor.textOf(Native.plait_options_values(options, kind));
  }

  /** The ops that Plait knows, as JSON (docs/ops.md). */
  public static String ops(Options options) {
    return Tensor.textOf(Native.plait_ops(options));
  }

  /** What this machine has, and what of it Plait uses, as JSON: processor, memory, MPI, CUDA devices. */
  public static String system(Options options) {
    return Tensor.textOf(Native.plait_system(options));
  }

  /** A machine as plans see it, as JSON. Options: machine, one that comes along (a100, h100, h200, v100) or a file. */
  public static String machine(Options options) {
    return Tensor.textOf(Native.plait_machine(options));
  }

  /** The fastest plan of a training run that fits, by simulation, as JSON. Options: decoder, machine, ranks, batch and others. */
  public static String plan(Options options) {
    return Tensor.textOf(Native.plait_plan(options));
  }
}

namespace Plait {

/// <summary>What stands for no object: the version, the options and the ops that there are.</summary>
public static class Library {
  /// <summary>The version of the native library, "0.1.0".</summary>
  public static string Version {
    get { return Native.plait_version(); }
  }

  /// <summary>All options, as JSON: key, what for, type, default, whether it repeats, doc.</summary>
  public static string Options() {
    Native.plait_options_describe(out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>What an object of that kind ("generator", "server", ...) would be created with, defaults included, as JSON.</summary>
  public static string Values(Options options, string kind) {
    Native.plait_options_values(options, Utf8.Name(kind), out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>The ops that Plait knows, as JSON (docs/ops.md).</summary>
  public static string Ops(Options options = null) {
    Native.plait_ops(options, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>What this machine has, and what of it Plait uses, as JSON: processor, memory, MPI, CUDA devices.</summary>
  public static string System(Options options = null) {
    Native.plait_system(options, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>A machine as plans see it, as JSON. Options: machine, one that comes along (a100, h100, h200, v100) or a file.</summary>
  public static string Machine(Options options) {
    Native.plait_machine(options, out var json);
    return Tensor.TextOf(json);
  }

  /// <summary>The fastest plan of a training run that fits, by simulation, as JSON. Options: decoder, machine, ranks, batch and
  /// others.</summary>
  public static string Plan(Options options) {
    Native.plait_plan(options, out var json);
    return Tensor.TextOf(json);
  }
}

}

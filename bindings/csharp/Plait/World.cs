using System;

namespace Plait {

/// <summary>Ranks that are processes, started by mpirun or the like. Every process opens the world; rank 0 then makes generators and
/// trainers on it,
/// and the others serve it.</summary>
public sealed class World : NativeObject {
  private World(IntPtr number) : base(number, null) {}

  internal override void Release(NativeObject number) {
    Native.plait_world_release(number);
  }

  /// <summary>Once a process.</summary>
  public static World Open(Options options = null) {
    Native.plait_world_open(options, out var made);
    return new World(made);
  }

  /// <summary>Which of the processes this is.</summary>
  public int Rank {
    get {
      Native.plait_world_rank(this, out var rank, out var size);
      return rank;
    }
  }

  /// <summary>How many there are.</summary>
  public int Size {
    get {
      Native.plait_world_rank(this, out var rank, out var size);
      return size;
    }
  }

  /// <summary>Ranks other than 0: computes until rank 0 ends the world.</summary>
  public void Serve() {
    Native.plait_world_serve(this);
  }

  /// <summary>Rank 0: the others' Serve return.</summary>
  public void End() {
    Native.plait_world_close(this);
  }
}

}

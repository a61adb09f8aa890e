package ai.plait;

/**
 * Ranks that are processes, started by mpirun or the like. Every process opens the world; rank 0 then makes generators and trainers on it
 * ({@link Model#generator(World, Options)}), and the others serve it.
 */
public final class World extends NativeObject {
  private World(long number) {
    super(number, Native::plait_world_release);
  }

  public static World open(Options options) {
    return new World(Native.plait_world_open(options));
  }

  public int rank() {
    return numbers()[0];
  }

  public int size() {
    return numbers()[1];
  }

  /** Ranks other than 0: computes until rank 0 ends the world. */
  public void serve() {
    Native.plait_world_serve(this);
  }

  /** Rank 0: the others' {@link #serve} return. */
  public void end() {
    Native.plait_world_close(this);
  }

  private int[] numbers() {
    int[] rank = new int[1];
    int[] size = new int[1];
    Native.plait_world_rank(this, rank, size);
    return new int[] {rank[0], size[0]};
  }
}

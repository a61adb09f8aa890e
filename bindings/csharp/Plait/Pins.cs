using System.Runtime.InteropServices;
using System.Threading;

namespace Plait {

/// <summary>Arrays of the host that native objects read. Each of these holds them until it is released: finalizers come in any order,
/// so a reference from one object to another does not determine which is finalized first.</summary>
internal sealed class Pins {
  private readonly GCHandle array;
  private readonly Pins[] parts;
  private int holders;

  internal Pins(object array) {
    this.array = GCHandle.Alloc(array, GCHandleType.Pinned);
    parts = new Pins[0];
  }

  /// <summary>Some of them may be null.</summary>
  internal Pins(Pins[] parts) {
    this.parts = parts;
    foreach (Pins part in parts) part?.Hold();
  }

  internal System.IntPtr Address {
    get { return array.AddrOfPinnedObject(); }
  }

  internal void Hold() {
    Interlocked.Increment(ref holders);
  }

  internal void LetGo() {
    if (Interlocked.Decrement(ref holders) != 0) return;
    foreach (Pins part in parts) part?.LetGo();
    if (array.IsAllocated) array.Free();
  }
}

}

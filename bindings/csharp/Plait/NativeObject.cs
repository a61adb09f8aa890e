using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;

namespace Plait {

/// <summary>What stands for an object of the native library. Dispose of it when it is no longer needed: in any order, as often as you
/// like, from any thread, also while it is in use. One that is forgotten is released by its finalizer.</summary>
public abstract class NativeObject : SafeHandle {
  /// <summary>What the native object reads, or null.</summary>
  internal readonly Pins Pins;

  internal NativeObject(IntPtr number, Pins pins, bool owned = true) : base(IntPtr.Zero, owned) {
    Pins = pins;
    pins?.Hold();
    SetHandle(number);
  }

  /// <summary>Whether the handle is invalid.</summary>
  public override bool IsInvalid {
    get { return handle == IntPtr.Zero; }
  }

  internal abstract void Release(NativeObject number);

  /// <summary>For the runtime: gives the reference back.</summary>
  protected override bool ReleaseHandle() {
    try {
      Release(new Number(handle));
      return true;
    } catch (PlaitException) {
      return false;
    } finally {
      Pins?.LetGo();
    }
  }

  /// <summary>What the imports take, which know no null.</summary>
  internal static NativeObject OrNone(NativeObject given) {
    return given ?? Number.None;
  }

  /// <summary>Numbers for a call. The caller gives them back by Unpin, until when none of the objects is released.</summary>
  internal static IntPtr[] Pin(NativeObject[] objects) {
    var numbers = new IntPtr[objects.Length];
    int held = 0;
    try {
      for (; held < objects.Length; ++held) {
        if (objects[held] == null) continue;
        bool added = false;
        objects[held].DangerousAddRef(ref added);
        numbers[held] = objects[held].handle;
      }
    } catch {
      Unpin(objects, held);
      throw;
    }
    return numbers;
  }

  internal static void Unpin(NativeObject[] objects, int count) {
    for (int i = 0; i < count; ++i) {
      if (objects[i] != null) objects[i].DangerousRelease();
    }
  }

  /// <summary>Hands a call names and numbers of tensors, none of which is released meanwhile.</summary>
  internal static void With(IReadOnlyDictionary<string, Tensor> tensors, Action<IntPtr[], IntPtr[]> call) {
    IntPtr[] names = Utf8.Names(tensors.Keys.ToArray()), numbers = null;
    NativeObject[] values = tensors.Values.ToArray<NativeObject>();
    try {
      numbers = Pin(values);
      call(names, numbers);
    } finally {
      if (numbers != null) Unpin(values, values.Length);
      Utf8.Free(names);
    }
  }

  /// <summary>Only a number owned by another object: it has no finalizer.</summary>
  private sealed class Number : NativeObject {
    internal static readonly Number None = new Number(IntPtr.Zero);

    internal Number(IntPtr number) : base(number, null, false) {}

    internal override void Release(NativeObject number) {}
  }
}

}

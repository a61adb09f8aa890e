// C#: the conventions of plait.h as P/Invoke. The layer above is the namespace Plait (bindings/csharp). Arrays are pinned by the
// runtime while a call lasts; what counts their elements is a parameter as in C.
%{
#define PLAIT_NO_MEMORY jresult = PLAIT_OUT_OF_MEMORY
%}

// A type as C, as the import and as C# see it; it crosses as it is.
%define %plait_csharp(TYPE, C, IMPORTED, CSHARP)
%typemap(ctype) TYPE %{C%}
%typemap(imtype) TYPE %{IMPORTED%}
%typemap(cstype) TYPE %{CSHARP%}
%typemap(csin) TYPE "$csinput"
%typemap(in) TYPE %{$1 = ($1_ltype)$input;%}
%typemap(freearg) TYPE ""
%typemap(argout) TYPE ""
%enddef

%csconst(1);
%pragma(csharp) moduleclassmodifiers="internal static class"
%pragma(csharp) imclassclassmodifiers="internal static class"
%rename("%(camelcase)s", %$ismember, %$isvariable) "";
%typemap(csclassmodifiers) SWIGTYPE "public sealed class"
%typemap(csclassmodifiers) plait_event, plait_view "internal sealed class"
// A struct's memory goes with its object.
%typemap(csinterfaces) SWIGTYPE ""
%typemap(csbody) SWIGTYPE %{
  private readonly global::System.Runtime.InteropServices.HandleRef swigCPtr;

  private $csclassname(global::System.IntPtr pointer, bool owned) {
    swigCPtr = new global::System.Runtime.InteropServices.HandleRef(this, pointer);
  }

  internal static global::System.Runtime.InteropServices.HandleRef getCPtr($csclassname filled) {
    return filled == null ? default(global::System.Runtime.InteropServices.HandleRef) : filled.swigCPtr;
  }
%}
%typemap(csdispose) SWIGTYPE %{
  ~$csclassname() {
    NativePINVOKE.delete_$csclassname(swigCPtr);
  }
%}
%typemap(csdisposing, methodname="", methodmodifiers="", parameters="") SWIGTYPE ""
%apply long long { int64_t };
%apply unsigned long long { uint64_t };
%apply int { int32_t };

// ---- Status: nothing, or an exception.
%plait_csharp(plait_status, int, int, void)
%typemap(out) plait_status "$result = (int)$1;"
%typemap(csout) plait_status {
    PlaitException.Check($imcall);
  }
%plait_csharp(plait_status status, int, int, int)

// ---- Handles: SafeHandles, which the runtime keeps during the call.
%define %plait_handle(NAME)
%plait_csharp(NAME*, void*, NativeObject, NativeObject)
%typemap(csin) NAME* "NativeObject.OrNone($csinput)"
%plait_csharp(NAME**, void*, out global::System.IntPtr, out global::System.IntPtr)
%typemap(csin) NAME** "out $csinput"
%plait_csharp(NAME* const*, void*, global::System.IntPtr[], global::System.IntPtr[])
%enddef
%define %plait_handles(NAME, FIRST, COUNT)
%enddef
%define %plait_results(NAME, FIRST, COUNT)
%plait_csharp(NAME** FIRST, void*, [global::System.Runtime.InteropServices.Out] global::System.IntPtr[], global::System.IntPtr[])
%enddef

// ---- Texts, arrays, memory
%define %plait_text(FIRST, COUNT)
%enddef
%define %plait_array(TYPE, FIRST, COUNT)
%enddef
%define %plait_memory(FIRST, COUNT)
%enddef
%plait_csharp(const char*, void*, byte[], byte[])
%plait_csharp(const char* const*, void*, global::System.IntPtr[], global::System.IntPtr[])
%plait_csharp(const int32_t*, void*, int[], int[])
%plait_csharp(const int64_t*, void*, long[], long[])
%plait_csharp(const float*, void*, float[], float[])
%plait_csharp(const double*, void*, double[], double[])
%plait_csharp(void*, void*, global::System.IntPtr, global::System.IntPtr)
%plait_csharp(const void*, void*, global::System.IntPtr, global::System.IntPtr)

// What comes back is a text that ends with a NUL, or a pointer that the layer reads.
%define %plait_returned(TYPE, IMPORTED, CSHARP, CONVERT)
%typemap(imtype, out="global::System.IntPtr") TYPE %{IMPORTED%}
%typemap(cstype, out=#CSHARP) TYPE %{IMPORTED%}
%typemap(out) TYPE "$result = (void*)$1;"
%typemap(csout) TYPE {
    return CONVERT($imcall);
  }
%typemap(csvarout) TYPE %{
    get {
      return CONVERT($imcall);
    }
  %}
%enddef
%plait_returned(const char*, byte[], string, Utf8.Text)
%plait_returned(const char* plait_tensor_text, byte[], global::System.IntPtr, )
%plait_returned(const char* text, byte[], global::System.IntPtr, )
%plait_returned(const int32_t*, int[], global::System.IntPtr, )
%plait_returned(const float*, float[], global::System.IntPtr, )
%plait_returned(void*, global::System.IntPtr, global::System.IntPtr, )

%typemap(ctype) int64_t[ANY] "void*"
%typemap(imtype) int64_t[ANY] "global::System.IntPtr"
%typemap(cstype) int64_t[ANY] "long[]"
%typemap(out) int64_t[ANY] "$result = (void*)$1;"
%typemap(csvarout) int64_t[ANY] %{
    get {
      if (Rank < 0) return null;
      var dims = new long[Rank];
      global::System.Runtime.InteropServices.Marshal.Copy($imcall, dims, 0, Rank);
      global::System.GC.KeepAlive(this);
      return dims;
    }
  %}

// ---- Outputs
%define %plait_output(TYPE, CSHARP)
%plait_csharp(TYPE*, void*, out CSHARP, out CSHARP)
%typemap(csin) TYPE* "out $csinput"
%enddef
%plait_output(int32_t, int)
%plait_output(int64_t, long)
%plait_output(float, float)
%plait_output(double, double)
%plait_output(enum SWIGTYPE, int)

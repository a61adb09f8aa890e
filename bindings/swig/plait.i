// The interface of Plait for hosts with garbage collection, made from plait.h and plait_server.h only: Java through JNI, C# through
// P/Invoke, Python through its stable interface.
//
// What is mapped is the header's conventions, so that a function that it gains is bound without a line here; what belongs
// together in its parameters conventions.py finds.
//
//   plait_status as result     an exception with code, message and hint, thrown before the wrapper returns
//   plait_x* of a handle       the host's object that owns the handle: it stays alive while the call runs
//   plait_x** as output        the result of the host's function, a new handle
//   int64_t*, double*, ...     outputs, in the order of the parameters
//   const char* x, length      UTF-8 as an array of bytes, NULs included; without a length a NUL is refused
//   const T* x, count          arrays
//   const void* x, bytes       the host's memory, not copied
//   struct* out                an object of the host with a property a field; its struct_size is set by the wrapper
//
// What is made is internal to the layers that people use (bindings/java, bindings/csharp, bindings/python).
%module(docstring="The functions of plait.h and plait_server.h.") Native

%{
#include "bindings/server/plait_server.h"
#include "bindings/swig/kept.h"
%}

#define PLAIT_API

// plait_generator_stats is GeneratorStats; PLAIT_FINISH_EOS of plait_finish is EOS. Functions keep their names.
%rename("%(regex:/^plait_([a-z]+)(?:_|)([a-z]*)(?:_|)([a-z]*)$/\\u\\1\\u\\2\\u\\3/)s", %$isclass) "";
%rename("%(regex:/^plait_([a-z]+)(?:_|)([a-z]*)(?:_|)([a-z]*)$/\\u\\1\\u\\2\\u\\3/)s", %$isenum) "";
%rename("%(regex:/^PLAIT_(?:EVENT_|FINISH_|LOG_|ENDING_)?(.+)$/\\1/)s", %$isenumitem) "";
%rename(DType) plait_dtype;
%rename(TrainingStep) plait_step;

// Structs are filled by the library, and are told how large they are.
%immutable;
%ignore struct_size;
%ignore reserved;
%ignore plait_fail;  // for libraries in C, as the next
%ignore plait_tensor_of_text;
%define %plait_struct(NAME, POINTS)
%{
static_assert(plait_swig::Kept<NAME>::points == POINTS, "kept.h has to say how what it points to is kept");
%}
%typemap(check) NAME* out "if ($1) $1->struct_size = sizeof *$1;"
%typemap(argout) NAME* out "if (result == PLAIT_OK && !plait_swig::keep($1)) PLAIT_NO_MEMORY;"
%extend NAME {
  NAME() { return plait_swig::new_struct<NAME>(); }
  ~NAME() { plait_swig::delete_struct($self); }
}
%enddef

#if defined(SWIGJAVA)
%include "java.i"
#elif defined(SWIGCSHARP)
%include "csharp.i"
#elif defined(SWIGPYTHON)
%include "python.i"
#endif

%include "conventions.i"  // made by conventions.py
#define enum enum class  // each has a scope of its own, so that its names can be short
%include "bindings/c/plait.h"
%include "bindings/server/plait_server.h"

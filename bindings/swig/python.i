// Python: the conventions of plait.h for CPython's stable interface. The layer above is the package plait (bindings/python). Handles
// are numbers, which the layer's objects own; every call releases the interpreter's lock (-threads).
%{
#include "bindings/swig/python_support.h"
#define PLAIT_NO_MEMORY \
  do { \
    PyErr_NoMemory(); \
    SWIG_fail; \
  } while (0)
%}

%apply long long { int64_t };
%apply unsigned long long { uint64_t };
%apply int { int32_t };

// ---- Status: nothing, or an exception.
%typemap(out) plait_status {
  if ($1 != PLAIT_OK) {
    plait_swig::raise_error($1);
    SWIG_fail;
  }
  $result = SWIG_Py_Void();
}

// ---- Handles
%define %plait_handle(NAME)
%typemap(in) NAME* "if (!plait_swig::read_handle($input, $1)) SWIG_fail;"
%typemap(in, numinputs=0) NAME** (NAME* made = nullptr) "$1 = &made;"
%typemap(argout) NAME** "$result = plait_swig::appended($result, PyLong_FromVoidPtr(*$1));"
%enddef

%define %plait_handles(NAME, FIRST, COUNT)
%typemap(in) (NAME* const* FIRST, int64_t COUNT) (std::vector<NAME*> handles) {
  if (!plait_swig::read_handles($input, handles)) SWIG_fail;
  $1 = handles.data();
  $2 = static_cast<int64_t>(handles.size());
}
%typemap(argout) (NAME* const* FIRST, int64_t COUNT) ""
%enddef

// The number of results goes in, a list comes out.
%define %plait_results(NAME, FIRST, COUNT)
%typemap(in) (NAME** FIRST, int64_t COUNT) (std::vector<NAME*> made) {
  if (!plait_swig::make_room($input, made)) SWIG_fail;
  $1 = made.data();
  $2 = static_cast<int64_t>(made.size());
}
%typemap(argout) (NAME** FIRST, int64_t COUNT)
  "$result = plait_swig::appended($result, plait_swig::list_of($1, $2));"
%enddef

// ---- Texts: str; arrays and memory: whatever has a buffer, not copied.
%define %plait_text(FIRST, COUNT)
%typemap(in) (const char* FIRST, int64_t COUNT) (plait_swig::Text text) {
  if (!text.read($input)) SWIG_fail;
  $1 = const_cast<char*>(text.data());
  $2 = text.size();
}
%typemap(freearg) (const char* FIRST, int64_t COUNT) ""
%enddef
%typemap(in) const char* (plait_swig::Text text) {
  if (!text.read($input) || !text.without_nul()) SWIG_fail;
  $1 = const_cast<char*>(text.data());
}
%typemap(freearg) const char* ""
%typemap(in) const char* const* (plait_swig::Texts texts) {
  if (!texts.read($input)) SWIG_fail;
  $1 = const_cast<char**>(texts.data());
}
%define %plait_array(TYPE, FIRST, COUNT)
%typemap(in) (const TYPE* FIRST, int64_t COUNT) (plait_swig::Memory memory) {
  if (!memory.read($input, sizeof(TYPE))) SWIG_fail;
  $1 = static_cast<TYPE*>(memory.data());
  $2 = memory.size() / static_cast<int64_t>(sizeof(TYPE));
}
%typemap(argout) (const TYPE* FIRST, int64_t COUNT) ""
%enddef
%define %plait_memory(FIRST, COUNT)
%typemap(in) (const void* FIRST, int64_t COUNT) (plait_swig::Memory memory) {
  if (!memory.read($input, 1)) SWIG_fail;
  $1 = memory.data();
  $2 = memory.size();
}
%apply (const void* FIRST, int64_t COUNT) { (void* FIRST, int64_t COUNT) };
%enddef

// ---- What comes back
%typemap(out) const char* "$result = plait_swig::text_of($1, std::strlen($1));"
%typemap(out) const char* text "$result = plait_swig::text_of(arg1->text, arg1->text_length);"
%typemap(out) const int32_t* top_tokens "$result = plait_swig::bytes_of(arg1->top_tokens, arg1->top_count);"
%typemap(out) const float* top_logprobs "$result = plait_swig::bytes_of(arg1->top_logprobs, arg1->top_count);"
%typemap(out) const float* logits "$result = plait_swig::bytes_of(arg1->logits, arg1->logits_count);"
%typemap(out) void* data "$result = PyLong_FromVoidPtr($1);"
%typemap(out) int64_t dims[ANY] "$result = plait_swig::tuple_of(arg1->dims, arg1->rank);"

// ---- Outputs
%define %plait_output(TYPE, MAKE)
%typemap(in, numinputs=0) TYPE* (TYPE filled) "$1 = &filled;"
%typemap(argout) TYPE* "$result = plait_swig::appended($result, MAKE(*$1));"
%enddef
%plait_output(int32_t, PyLong_FromLong)
%plait_output(int64_t, PyLong_FromLongLong)
%plait_output(double, PyFloat_FromDouble)
%plait_output(plait_log_level, PyLong_FromLong)

// Java: the conventions of plait.h as JNI. The layer above is ai.plait (bindings/java).
%include <enums.swg>

%{
#include "bindings/swig/java_support.h"
#define PLAIT_NO_MEMORY plait_swig::throw_error(jenv, PLAIT_OUT_OF_MEMORY, "no memory left for a result", "")

extern "C" JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* machine, void*) {
  JNIEnv* env = nullptr;
  if (machine->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  return plait_swig::load_names(env);
}
%}

// A type as JNI and as Java see it; it crosses as it is.
#define %pair(FIRST, SECOND) (FIRST, SECOND)
// The same for texts, which Java's side of the wrapper encodes and decodes.
%define %plait_java_text(TYPE, JNI, BYTES, TEXT)
%typemap(jni) TYPE %{JNI%}
%typemap(jtype) TYPE %{BYTES%}
%typemap(jstype) TYPE %{TEXT%}
%typemap(javain) TYPE "Utf8.bytes($javainput)"
%typemap(javaout) TYPE { return Utf8.text($jnicall); }
%enddef
%define %plait_java(TYPE, JNI, JAVA)
%typemap(jni) TYPE %{JNI%}
%typemap(jtype) TYPE %{JAVA%}
%typemap(jstype) TYPE %{JAVA%}
%typemap(javain) TYPE "$javainput"
%typemap(javaout) TYPE { return $jnicall; }
%typemap(javavarout) TYPE "\n    return $jnicall;\n  "
%enddef

%javaconst(1);
%rename("%(lowercamelcase)s", %$ismember, %$isvariable) "";
%rename("%(lowercamelcase)s", %$ismember, %$isfunction) "";
%pragma(java) moduleclassmodifiers="final class"
%pragma(java) jniclassclassmodifiers="final class"
%typemap(javaclassmodifiers) SWIGTYPE "public final class"
%typemap(javaclassmodifiers) enum SWIGTYPE "public enum"
%typemap(javaclassmodifiers) plait_event, plait_view "final class"
// A struct's memory goes with its object.
%typemap(javafinalize) SWIGTYPE ""
%typemap(javabody) SWIGTYPE %{
  private final long swigCPtr;
  private final java.lang.ref.Cleaner.Cleanable release;

  private $javaclassname(long pointer, boolean owned) {
    swigCPtr = pointer;
    release = NativeObject.CLEANER.register(this, () -> NativeJNI.delete_$javaclassname(pointer));
  }

  static long getCPtr($javaclassname struct) {
    return struct == null ? 0 : struct.swigCPtr;
  }
%}
%typemap(javadestruct, methodname="free", methodmodifiers="private") SWIGTYPE { release.clean(); }
%pragma(java) jniclasscode=%{
  static {
    NativeLibrary.load();
  }
%}
%apply long long { int64_t, uint64_t };
%apply int { int32_t };
%plait_java(int64_t[ANY], jlongArray, long[])
%typemap(out) int64_t[ANY] {
  $result = jenv->NewLongArray($1_dim0);
  if ($result) jenv->SetLongArrayRegion($result, 0, $1_dim0, reinterpret_cast<const jlong*>($1));
}
%typemap(in, numinputs=0) JNIEnv* jenv "$1 = jenv;"

%typemap(javaout) int64_t dims[ANY] {
    return getRank() < 0 ? null : java.util.Arrays.copyOf($jnicall, getRank());
  }

// ---- Enums are the header's numbers.
%typemap(javabody) enum SWIGTYPE %{
  private static final $javaclassname[] ALL = values();
  private final int code;

  $javaclassname(int code) {
    this.code = code;
  }

  /** The number that plait.h gives it. */
  public int code() {
    return code;
  }

  static $javaclassname of(int code) {
    if (code >= 0 && code < ALL.length && ALL[code].code == code) return ALL[code];
    for ($javaclassname one : ALL) if (one.code == code) return one;
    throw new IllegalArgumentException("$javaclassname has no number " + code);
  }
%}
%typemap(javain) enum SWIGTYPE "$javainput.code()"
%typemap(javaout) enum SWIGTYPE { return $javaclassname.of($jnicall); }

// ---- Status: a function's result is the handle that it gives out, or 0.
%plait_java(plait_status, jlong, long)
%typemap(out) plait_status "$result = 0; if ($1 != PLAIT_OK) plait_swig::throw_status(jenv, $1);"
%plait_java(plait_status status, jint, int)
%typemap(in) plait_status status "$1 = static_cast<plait_status>($input);"

// ---- Handles
%define %plait_handle(NAME)
%plait_java(NAME*, jobject, Handle)
%typemap(javain) NAME* "Handle.open($javainput)"
%typemap(in) NAME* "$1 = static_cast<NAME*>(plait_swig::handle_of(jenv, $input));"
%typemap(in, numinputs=0) NAME** (NAME* made = nullptr) "$1 = &made;"
%typemap(argout) NAME** "if (result == PLAIT_OK) $result = static_cast<jlong>(reinterpret_cast<intptr_t>(made$argnum));"
%enddef

%define %plait_handles(NAME, FIRST, COUNT)
%plait_java(%pair(NAME* const* FIRST, int64_t COUNT), jobjectArray, Handle[])
%typemap(javain) (NAME* const* FIRST, int64_t COUNT) "Handle.open($javainput)"
%typemap(in) (NAME* const* FIRST, int64_t COUNT) (plait_swig::CopiedHandles<NAME> copied) {
  if (!copied.read(jenv, $input)) return $null;
  $1 = copied.data();
  $2 = copied.count();
}
%typemap(argout) (NAME* const* FIRST, int64_t COUNT) ""
%enddef

%define %plait_results(NAME, FIRST, COUNT)
%plait_java(%pair(NAME** FIRST, int64_t COUNT), jlongArray, long[])
%typemap(in) (NAME** FIRST, int64_t COUNT) (std::unique_ptr<NAME*[]> made) {
  if (!plait_swig::has_room(jenv, $input, 0)) return $null;
  $2 = jenv->GetArrayLength($input);
  made = plait_swig::room_for<NAME*>(jenv, $2);
  if (!made) return $null;
  $1 = made.get();
}
%typemap(argout) (NAME** FIRST, int64_t COUNT)
  "if (result == PLAIT_OK) jenv->SetLongArrayRegion($input, 0, static_cast<jsize>($2), reinterpret_cast<const jlong*>($1));"
%enddef

// ---- Texts, arrays, memory
%define %plait_text(FIRST, COUNT)
%plait_java_text(%pair(const char* FIRST, int64_t COUNT), jbyteArray, byte[], String)
%typemap(in) (const char* FIRST, int64_t COUNT) (plait_swig::Copied<char> copied) {
  if (!copied.read(jenv, $input)) return $null;
  $1 = copied.data();
  $2 = copied.length();
}
%enddef

%plait_java_text(const char*, jbyteArray, byte[], String)
%typemap(in) const char* (plait_swig::Copied<char> copied) {
  if (!copied.read(jenv, $input, true)) return $null;
  $1 = copied.data();
}
%typemap(freearg) const char* ""
%typemap(out) const char* "$result = plait_swig::bytes_of(jenv, $1);"

%typemap(out) const char* plait_tensor_text "$result = plait_swig::text_of(jenv, arg1, $1);"

%plait_java_text(const char* const*, jobjectArray, byte[][], String[])
%typemap(in) const char* const* (plait_swig::CopiedTexts copied) {
  if (!copied.read(jenv, $input)) return $null;
  $1 = const_cast<$1_ltype>(copied.data());
}

%define %plait_array(TYPE, FIRST, COUNT)
%apply (const TYPE* PLAIT_ARRAY, int64_t PLAIT_COUNT) { (const TYPE* FIRST, int64_t COUNT) };
%enddef
%define %plait_arrays_of(TYPE, JNI, JAVA)
%plait_java(%pair(const TYPE* PLAIT_ARRAY, int64_t PLAIT_COUNT), JNI, JAVA)
%typemap(in) (const TYPE* PLAIT_ARRAY, int64_t PLAIT_COUNT) (plait_swig::Copied<TYPE> copied) {
  if (!copied.read(jenv, $input)) return $null;
  $1 = copied.data();
  $2 = copied.length();
}
%enddef
%plait_arrays_of(int32_t, jintArray, int[])
%plait_arrays_of(int64_t, jlongArray, long[])
%plait_arrays_of(float, jfloatArray, float[])
%plait_arrays_of(double, jdoubleArray, double[])

%define %plait_memory(FIRST, COUNT)
%plait_java(%pair(void* FIRST, int64_t COUNT), jobject, java.nio.ByteBuffer)
%plait_java(%pair(const void* FIRST, int64_t COUNT), jobject, java.nio.ByteBuffer)
%typemap(in) (void* FIRST, int64_t COUNT) (void* memory) {
  if (!plait_swig::memory_of(jenv, $input, &memory, &$2)) return $null;
  $1 = memory;
}
%typemap(in) (const void* FIRST, int64_t COUNT) = (void* FIRST, int64_t COUNT);
%enddef

// ---- Outputs: the first element of an array.
%define %plait_output(TYPE, JNI, JAVA, SET, ELEMENT)
%plait_java(TYPE*, JNI, JAVA)
%typemap(in) TYPE* ($*1_ltype out) {
  if (!plait_swig::has_room(jenv, $input, 1)) return $null;
  $1 = &out;
}
%typemap(argout) TYPE* {
  if (result == PLAIT_OK) {
    auto value = static_cast<ELEMENT>(*$1);
    jenv->SET($input, 0, 1, &value);
  }
}
%enddef
%plait_output(int32_t, jintArray, int[], SetIntArrayRegion, jint)
%plait_output(int64_t, jlongArray, long[], SetLongArrayRegion, jlong)
%plait_output(float, jfloatArray, float[], SetFloatArrayRegion, jfloat)
%plait_output(double, jdoubleArray, double[], SetDoubleArrayRegion, jdouble)
%plait_output(enum SWIGTYPE, jintArray, int[], SetIntArrayRegion, jint)

// ---- Memory that structs point to
%ignore plait_view::data;
%plait_java(jobject, jobject, java.nio.ByteBuffer)
%typemap(javaout) jobject { return (java.nio.ByteBuffer) $jnicall; }
%typemap(jtype) jobject "Object"
%extend plait_view {
  /* The tensor's own memory: whoever holds the buffer has to keep the tensor. */
  jobject buffer(JNIEnv* jenv, int64_t offset, int64_t bytes) {
    if (offset < 0 || bytes < 0 || bytes > $self->bytes - offset) {
      plait_swig::throw_error(jenv, PLAIT_INVALID_ARGUMENT, "the buffer would end outside of the tensor", "");
      return nullptr;
    }
    return jenv->NewDirectByteBuffer(static_cast<char*>($self->data) + offset, bytes);
  }
}
%ignore plait_event::text;
%ignore plait_event::top_tokens;
%ignore plait_event::top_logprobs;
%ignore plait_event::logits;
%extend plait_event {
  void copy_text(JNIEnv* jenv, jbyteArray into) {
    jenv->SetByteArrayRegion(into, 0, static_cast<jsize>($self->text_length), reinterpret_cast<const jbyte*>($self->text));
  }
  void copy_top(JNIEnv* jenv, jintArray tokens, jfloatArray logprobs) {
    jenv->SetIntArrayRegion(tokens, 0, $self->top_count, reinterpret_cast<const jint*>($self->top_tokens));
    jenv->SetFloatArrayRegion(logprobs, 0, $self->top_count, $self->top_logprobs);
  }
  void copy_logits(JNIEnv* jenv, jfloatArray into) {
    jenv->SetFloatArrayRegion(into, 0, static_cast<jsize>($self->logits_count), $self->logits);
  }
}

#pragma once
// Helpers of the JNI wrappers. Texts are passed as byte arrays: JNI's own strings are "modified" UTF-8, which encodes
// NUL and supplementary characters differently.
#include <jni.h>

#include <cstring>
#include <memory>
#include <new>

#include "bindings/c/plait.h"

namespace plait_swig {

/// Looked up once, when the library is loaded, by the class loader that loads it.
struct JavaNames {
  jclass exception = nullptr;
  jmethodID make_exception = nullptr;  ///< (status, message, hint)
  jfieldID handle = nullptr;           ///< of ai.plait.Handle
};
inline JavaNames& java_names() {
  static JavaNames names;
  return names;
}

inline jint load_names(JNIEnv* env) {
  JavaNames& names = java_names();
  jclass exception = env->FindClass("ai/plait/PlaitException");
  if (!exception) return JNI_ERR;
  names.make_exception = env->GetMethodID(exception, "<init>", "(I[B[B)V");
  if (!names.make_exception) return JNI_ERR;
  jclass handle = env->FindClass("ai/plait/Handle");
  if (!handle) return JNI_ERR;
  names.handle = env->GetFieldID(handle, "number", "J");
  names.exception = static_cast<jclass>(env->NewGlobalRef(exception));
  return names.handle && names.exception ? JNI_VERSION_1_8 : JNI_ERR;
}

/// Null if there is no memory; Java then has an exception.
inline jbyteArray bytes_of(JNIEnv* env, const void* data, int64_t size) {
  jbyteArray out = env->NewByteArray(static_cast<jsize>(size));
  if (out) env->SetByteArrayRegion(out, 0, static_cast<jsize>(size), static_cast<const jbyte*>(data));
  return out;
}
inline jbyteArray bytes_of(JNIEnv* env, const char* text) {
  return bytes_of(env, text, static_cast<int64_t>(std::strlen(text)));
}

inline void throw_error(JNIEnv* env, plait_status status, const char* message, const char* hint) {
  if (env->ExceptionCheck()) return;
  jbyteArray what = bytes_of(env, message), change = what ? bytes_of(env, hint) : nullptr;
  if (!change) return;
  auto made = static_cast<jthrowable>(
      env->NewObject(java_names().exception, java_names().make_exception, static_cast<jint>(status), what, change));
  if (made) env->Throw(made);
}
/// Throws the status of a call on this thread, with its message.
inline void throw_status(JNIEnv* env, plait_status status) {
  throw_error(env, status, plait_last_error(), plait_last_hint());
}

/// The number in an ai.plait.Handle; NULL for null. The argument keeps the object from being collected during the call.
inline void* handle_of(JNIEnv* env, jobject handle) {
  return handle ? reinterpret_cast<void*>(static_cast<intptr_t>(env->GetLongField(handle, java_names().handle)))
                : nullptr;
}

/// All bytes of a text result, including NULs, from `text`.
inline jbyteArray text_of(JNIEnv* env, plait_tensor* tensor, const char* text) {
  plait_view view{};
  view.struct_size = sizeof view;
  plait_status status = plait_tensor_view(tensor, &view);
  if (status == PLAIT_OK && text == view.data) return bytes_of(env, text, view.bytes);
  throw_status(env, status == PLAIT_OK ? PLAIT_INVALID_ARGUMENT : status);
  return nullptr;
}

inline void get_region(JNIEnv* env, jobject array, jsize n, char* out) {
  env->GetByteArrayRegion(static_cast<jbyteArray>(array), 0, n, reinterpret_cast<jbyte*>(out));
}
inline void get_region(JNIEnv* env, jobject array, jsize n, int32_t* out) {
  env->GetIntArrayRegion(static_cast<jintArray>(array), 0, n, reinterpret_cast<jint*>(out));
}
inline void get_region(JNIEnv* env, jobject array, jsize n, int64_t* out) {
  env->GetLongArrayRegion(static_cast<jlongArray>(array), 0, n, reinterpret_cast<jlong*>(out));
}
inline void get_region(JNIEnv* env, jobject array, jsize n, float* out) {
  env->GetFloatArrayRegion(static_cast<jfloatArray>(array), 0, n, out);
}
inline void get_region(JNIEnv* env, jobject array, jsize n, double* out) {
  env->GetDoubleArrayRegion(static_cast<jdoubleArray>(array), 0, n, out);
}

/// Uninitialised memory; throws in Java if there is none.
template <class T>
std::unique_ptr<T[]> room_for(JNIEnv* env, int64_t count) {
  std::unique_ptr<T[]> out(new (std::nothrow) T[static_cast<size_t>(count)]);
  if (!out) throw_error(env, PLAIT_OUT_OF_MEMORY, "no memory left for an argument", "");
  return out;
}

/// Copies a Java array as a block, since the call may wait, which forbids pinning. Nothing for null, with length -1.
template <class T>
class Copied {
 public:
  /// False: Java has an exception. `ending`: appends a NUL, and none may be inside.
  bool read(JNIEnv* env, jobject array, bool ending = false) {
    if (!array) return true;
    length_ = env->GetArrayLength(static_cast<jarray>(array));
    data_ = room_for<T>(env, length_ + 1);
    if (!data_) return false;
    get_region(env, array, static_cast<jsize>(length_), data_.get());
    data_[static_cast<size_t>(length_)] = T{};
    if (!ending || !std::memchr(data_.get(), 0, static_cast<size_t>(length_) * sizeof(T))) return true;
    throw_error(env, PLAIT_INVALID_ARGUMENT, "there is a NUL in the middle of a name or path", "");
    return false;
  }
  T* data() const { return data_.get(); }
  int64_t length() const { return length_; }

 private:
  std::unique_ptr<T[]> data_;
  int64_t length_ = -1;
};

/// Names: an array of arrays of bytes.
class CopiedTexts {
 public:
  bool read(JNIEnv* env, jobjectArray array) {
    if (!array) return true;
    jsize count = env->GetArrayLength(array);
    texts_ = room_for<Copied<char>>(env, count);
    pointers_ = room_for<const char*>(env, count);
    if (!texts_ || !pointers_) return false;
    for (jsize i = 0; i < count; ++i) {
      jobject text = env->GetObjectArrayElement(array, i);
      bool read = texts_[i].read(env, text, true);
      env->DeleteLocalRef(text);
      if (!read) return false;
      pointers_[i] = texts_[i].data();
    }
    return true;
  }
  const char* const* data() const { return pointers_.get(); }

 private:
  std::unique_ptr<Copied<char>[]> texts_;
  std::unique_ptr<const char*[]> pointers_;
};

/// Handles: an array of ai.plait.Handle.
template <class T>
class CopiedHandles {
 public:
  bool read(JNIEnv* env, jobjectArray array) {
    if (!array) return true;
    count_ = env->GetArrayLength(array);
    numbers_ = room_for<T*>(env, count_);
    if (!numbers_) return false;
    for (jsize i = 0; i < count_; ++i) {
      jobject handle = env->GetObjectArrayElement(array, i);
      numbers_[i] = static_cast<T*>(handle_of(env, handle));
      env->DeleteLocalRef(handle);
    }
    return true;
  }
  T** data() const { return numbers_.get(); }
  int64_t count() const { return count_; }

 private:
  std::unique_ptr<T*[]> numbers_;
  jsize count_ = 0;
};

/// A whole direct buffer; NULL for null. False: Java has an exception.
inline bool memory_of(JNIEnv* env, jobject buffer, void** data, int64_t* bytes) {
  *data = buffer ? env->GetDirectBufferAddress(buffer) : nullptr;
  *bytes = buffer ? env->GetDirectBufferCapacity(buffer) : 0;
  if (*bytes >= 0) return true;
  throw_error(env, PLAIT_INVALID_ARGUMENT, "the buffer is not direct", "use ByteBuffer.allocateDirect");
  return false;
}

/// Checks that an output array is long enough.
inline bool has_room(JNIEnv* env, jarray array, int64_t count) {
  if (array && env->GetArrayLength(array) >= count) return true;
  throw_error(env, PLAIT_INVALID_ARGUMENT, "the array for a result is null or too short", "");
  return false;
}

}  // namespace plait_swig

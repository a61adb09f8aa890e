#pragma once
// What the wrapper for Python needs that SWIG does not make: from and to Python's objects. Functions that return bool set an exception
// if they return false. Called with the interpreter's lock.
#include <Python.h>

#include <cstring>
#include <string>
#include <vector>

#include "bindings/c/plait.h"

namespace plait_swig {

/// An object that is released with its owner.
class Owned {
 public:
  explicit Owned(PyObject* object = nullptr) : object_(object) {}
  ~Owned() { Py_XDECREF(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  PyObject* get() const { return object_; }
  void set(PyObject* object) {
    Py_XDECREF(object_);
    object_ = object;
  }

 private:
  PyObject* object_;
};

/// Raises plait.errors.Error with the status and the thread's last message and hint.
inline void raise_error(plait_status status) {
  const std::string message = plait_last_error(), hint = plait_last_hint();
  const Owned module(PyImport_ImportModule("plait.errors"));
  if (!module.get()) return;
  const Owned raise(PyObject_GetAttrString(module.get(), "raise_error"));
  if (!raise.get()) return;
  Py_XDECREF(PyObject_CallFunction(raise.get(), "iss", static_cast<int>(status), message.c_str(), hint.c_str()));
}

/// Of an object of the layer, which lives as long as the call; or the number itself.
template <class Handle>
bool read_handle(PyObject* given, Handle*& out) {
  out = nullptr;
  if (given == Py_None) return true;
  const Owned number(PyLong_Check(given) ? Py_NewRef(given) : PyObject_GetAttrString(given, "_handle"));
  if (!number.get()) return false;
  out = static_cast<Handle*>(PyLong_AsVoidPtr(number.get()));
  return !PyErr_Occurred();
}

template <class Handle>
bool read_handles(PyObject* list, std::vector<Handle*>& out) {
  const Py_ssize_t count = PySequence_Size(list);
  if (count < 0) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned one(PySequence_GetItem(list, i));
    out.push_back(nullptr);
    if (!one.get() || !read_handle(one.get(), out.back())) return false;
  }
  return true;
}

template <class Handle>
bool make_room(PyObject* number, std::vector<Handle*>& out) {
  const Py_ssize_t count = PyLong_AsSsize_t(number);
  if (PyErr_Occurred()) return false;
  out.resize(static_cast<size_t>(count));
  return true;
}

template <class Handle>
PyObject* list_of(Handle* const* handles, int64_t count) {
  PyObject* out = PyList_New(static_cast<Py_ssize_t>(count));
  for (Py_ssize_t i = 0; out && i < count; ++i) PyList_SetItem(out, i, PyLong_FromVoidPtr(handles[i]));
  return out;
}

/// A str as UTF-8.
class Text {
 public:
  bool read(PyObject* given) {
    if (!PyUnicode_Check(given)) {
      PyErr_SetString(PyExc_TypeError, "expected a str");
      return false;
    }
    bytes_.set(PyUnicode_AsUTF8String(given));
    if (!bytes_.get()) return false;
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(bytes_.get(), &data, &size) < 0) return false;
    data_ = data;
    size_ = size;
    return true;
  }
  bool without_nul() const {
    if (std::strlen(data_) == static_cast<size_t>(size_)) return true;
    PyErr_SetString(PyExc_ValueError, "a name or path has a NUL");
    return false;
  }
  const char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  Owned bytes_;
  const char* data_ = "";
  Py_ssize_t size_ = 0;
};

/// A sequence of str.
class Texts {
 public:
  bool read(PyObject* list) {
    const Py_ssize_t count = PySequence_Size(list);
    if (count < 0) return false;
    texts_.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      const Owned one(PySequence_GetItem(list, i));
      Text text;
      if (!one.get() || !text.read(one.get()) || !text.without_nul()) return false;
      texts_.emplace_back(text.data());
    }
    for (const std::string& text : texts_) pointers_.push_back(text.c_str());
    return true;
  }
  const char** data() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<const char*> pointers_;
};

/// The bytes of an object with a buffer, which is locked as long as this lives.
class Memory {
 public:
  Memory() = default;
  ~Memory() {
    if (locked_) PyBuffer_Release(&buffer_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  bool read(PyObject* given, size_t item) {
    if (given == Py_None) return true;
    if (PyObject_GetBuffer(given, &buffer_, PyBUF_C_CONTIGUOUS) < 0) return false;
    locked_ = true;
    if (static_cast<size_t>(buffer_.len) % item == 0) return true;
    PyErr_SetString(PyExc_ValueError, "a buffer of other elements");
    return false;
  }
  void* data() const { return buffer_.buf; }
  int64_t size() const { return buffer_.len; }

 private:
  Py_buffer buffer_{};
  bool locked_ = false;
};

inline PyObject* text_of(const char* text, int64_t length) {
  return PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), "replace");
}

/// What a function returns, with one more output: itself, or a tuple with it. Takes both references.
inline PyObject* appended(PyObject* result, PyObject* output) {
  if (!result || !output || result == Py_None) {
    Py_XDECREF(result);
    return output;
  }
  const Owned before(result), after(output);
  if (!PyTuple_Check(result)) return PyTuple_Pack(2, result, output);
  const Owned last(PyTuple_Pack(1, output));
  return last.get() ? PySequence_Concat(result, last.get()) : nullptr;
}

template <class Number>
PyObject* bytes_of(const Number* first, int64_t count) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(first), static_cast<Py_ssize_t>(count * sizeof(Number)));
}

/// Sizes; None if the rank is not known.
inline PyObject* tuple_of(const int64_t* dims, int64_t rank) {
  if (rank < 0) Py_RETURN_NONE;
  PyObject* out = PyTuple_New(static_cast<Py_ssize_t>(rank));
  for (Py_ssize_t i = 0; out && i < rank; ++i) PyTuple_SetItem(out, i, PyLong_FromLongLong(dims[i]));
  return out;
}

}  // namespace plait_swig

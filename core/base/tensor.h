#pragma once
// Tensors in memory: a Blob owns bytes, a Tensor is a typed range of a Blob, a TensorView is non-owning.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace plait {

/// Owned or borrowed bytes: heap memory, a mapped file, a host's buffer. Immutable after construction except by the
/// creator. Thread-safe to share.
class Blob {
 public:
  virtual ~Blob() = default;
  const std::byte* data() const { return data_; }
  std::byte* mutable_data() const { return data_; }  ///< only for blobs that were made writable
  int64_t size() const { return size_; }
  /// Hints that the bytes [offset, offset + bytes) will not be read again soon, so that a mapped file's pages can be
  /// released. Reading them again stays legal.
  virtual void drop(int64_t offset, int64_t bytes) const { (void)offset, (void)bytes; }
  /// Throws Error(io) when the bytes are not any more what they were: of a mapped file that was shortened or written to.
  /// Reading after the new end of such a file would end the process (SIGBUS).
  virtual void check() const {}

 protected:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

/// Zeroed memory, 64-byte aligned; throws Error(out_of_memory).
std::shared_ptr<Blob> make_blob(int64_t bytes);
/// A copy of `bytes` in fresh memory.
std::shared_ptr<Blob> copy_blob(std::span<const std::byte> bytes);
/// Borrows memory that `owner` keeps alive.
std::shared_ptr<Blob> borrow_blob(std::byte* data, int64_t size, std::shared_ptr<const void> owner);

/// Contiguous, row-major. `data` is null for an absent optional operand; elements need not be aligned.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::none;
  Shape shape;

  bool present() const { return dtype != DType::none; }
  int64_t elements() const { return present() ? shape.elements() : 0; }  ///< 0 for an absent operand
  int64_t bytes() const { return packed_bytes(elements(), dtype_bits(dtype)); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// A TensorView with shared ownership of its bytes. Copying shares the bytes.
class Tensor {
 public:
  Tensor() = default;
  /// Zeroed.
  Tensor(DType dtype, const Shape& shape);
  /// The part of `blob` from `offset`; throws Error(bad_model) if it is too short.
  Tensor(DType dtype, const Shape& shape, std::shared_ptr<const Blob> blob, int64_t offset = 0);

  template <class T>
  static Tensor of(DType dtype, const Shape& shape, std::span<const T> values) {
    Tensor out(dtype, shape);
    if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
    return out;
  }
  static Tensor of_ints(std::span<const int64_t> values);  ///< i64, rank 1

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return packed_bytes(elements(), dtype_bits(dtype_)); }
  bool present() const { return dtype_ != DType::none; }
  std::byte* data() const { return blob_ ? blob_->mutable_data() + offset_ : nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }
  TensorView view() const { return {data(), dtype_, shape_}; }
  const std::shared_ptr<const Blob>& blob() const { return blob_; }
  int64_t offset() const { return offset_; }
  /// The same bytes under another shape of as many elements.
  Tensor reshaped(const Shape& shape) const;
  /// Hints that these bytes will not be read again soon.
  void drop() const;

 private:
  DType dtype_ = DType::none;
  Shape shape_;
  std::shared_ptr<const Blob> blob_;
  int64_t offset_ = 0;
};

/// The elements of an integer or bool tensor as int64. Throws Error(invalid_argument) for other dtypes.
std::vector<int64_t> to_ints(const TensorView& tensor);

}  // namespace plait

#include "core/base/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

[[noreturn]] void refuse(int64_t bytes) {
  throw Error(Code::out_of_memory, cat("cannot allocate ", human_bytes(bytes)));
}

/// From this size on, memory is mapped from the system and unmapped. malloc does so only at first: later it keeps
/// freed blocks of such sizes in per-thread arenas, and calloc must clear them.
constexpr int64_t pages_from = int64_t{2} << 20;

/// Pages are zero without being touched: a large budget costs memory only where used.
class PagesBlob : public Blob {
 public:
  explicit PagesBlob(int64_t bytes) {
    void* data =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) refuse(bytes);
    data_ = static_cast<std::byte*>(data);
    size_ = bytes;
  }
  ~PagesBlob() override { munmap(data_, static_cast<size_t>(size_)); }
};

class HeapBlob : public Blob {
 public:
  explicit HeapBlob(int64_t bytes) {
    constexpr int64_t alignment = 64;
    raw_ = bytes < 0 ? nullptr : std::calloc(1, static_cast<size_t>(bytes + alignment));
    if (!raw_) refuse(bytes);
    auto address = reinterpret_cast<uintptr_t>(raw_);
    data_ = reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
    size_ = bytes;
  }
  ~HeapBlob() override { std::free(raw_); }

 private:
  void* raw_;
};

class BorrowedBlob : public Blob {
 public:
  BorrowedBlob(std::byte* data, int64_t size, std::shared_ptr<const void> owner) : owner_(std::move(owner)) {
    data_ = data;
    size_ = size;
  }

 private:
  std::shared_ptr<const void> owner_;
};

template <class T>
void widen(const TensorView& tensor, std::vector<int64_t>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T element;  // the bytes of a file may be unaligned
    std::memcpy(&element, tensor.data + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(element);
  }
}

}  // namespace

std::shared_ptr<Blob> make_blob(int64_t bytes) {
  if (bytes >= pages_from) return std::make_shared<PagesBlob>(bytes);
  return std::make_shared<HeapBlob>(bytes);
}

std::shared_ptr<Blob> copy_blob(std::span<const std::byte> bytes) {
  auto blob = make_blob(static_cast<int64_t>(bytes.size()));
  if (!bytes.empty()) std::memcpy(blob->mutable_data(), bytes.data(), bytes.size());
  return blob;
}

std::shared_ptr<Blob> borrow_blob(std::byte* data, int64_t size, std::shared_ptr<const void> owner) {
  return std::make_shared<BorrowedBlob>(data, size, std::move(owner));
}

Tensor::Tensor(DType dtype, const Shape& shape)
    : dtype_(dtype),
      shape_(shape),
      blob_(make_blob(
          packed_bytes(checked_elements({shape.begin(), shape.end()}, dtype_bits(dtype)), dtype_bits(dtype)))) {}

Tensor::Tensor(DType dtype, const Shape& shape, std::shared_ptr<const Blob> blob, int64_t offset)
    : dtype_(dtype), shape_(shape), blob_(std::move(blob)), offset_(offset) {
  if (offset < 0 || offset > blob_->size() || bytes() > blob_->size() - offset)
    throw Error(Code::bad_model, cat("a tensor ", dtype_name(dtype), shape.text(), " needs ", bytes(),
                                     " bytes at offset ", offset, ", there are ", blob_->size()));
}

Tensor Tensor::of_ints(std::span<const int64_t> values) {
  return of<int64_t>(DType::i64, Shape{static_cast<int64_t>(values.size())}, values);
}

Tensor Tensor::reshaped(const Shape& shape) const {
  PLAIT_ASSERT(shape.elements() == elements());
  Tensor out = *this;
  out.shape_ = shape;
  return out;
}

void Tensor::drop() const {
  if (blob_) blob_->drop(offset_, bytes());
}

std::vector<int64_t> to_ints(const TensorView& tensor) {
  std::vector<int64_t> out(static_cast<size_t>(tensor.elements()));
  switch (tensor.dtype) {
    case DType::i64: widen<int64_t>(tensor, out); break;
    case DType::u64: widen<uint64_t>(tensor, out); break;
    case DType::i32: widen<int32_t>(tensor, out); break;
    case DType::u32: widen<uint32_t>(tensor, out); break;
    case DType::i16: widen<int16_t>(tensor, out); break;
    case DType::u16: widen<uint16_t>(tensor, out); break;
    case DType::i8: widen<int8_t>(tensor, out); break;
    case DType::u8:
    case DType::boolean: widen<uint8_t>(tensor, out); break;
    default: throw Error(Code::invalid_argument, cat("expected an integer tensor, got ", dtype_name(tensor.dtype)));
  }
  return out;
}

}  // namespace plait

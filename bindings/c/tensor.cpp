// Tensors of the C API.
#include "bindings/c/objects.h"
#include "core/base/file_writer.h"
#include "core/base/mapped_file.h"
#include "core/base/npy.h"

namespace plait::c_api {

std::shared_ptr<Tensor> text_tensor(std::string_view text) {
  auto blob = make_blob(static_cast<int64_t>(text.size()) + 1);  // zeroed: the final NUL
  std::memcpy(blob->mutable_data(), text.data(), text.size());
  return share(Tensor(DType::u8, Shape{static_cast<int64_t>(text.size())}, blob));
}

namespace {

static_assert(PLAIT_F32 == static_cast<int>(DType::f32) && PLAIT_BOOL == static_cast<int>(DType::boolean) &&
              PLAIT_BF16 == static_cast<int>(DType::bf16) && PLAIT_I2 == static_cast<int>(DType::i2));
static_assert(PLAIT_INTERNAL == static_cast<int>(Code::internal));
static_assert(Shape::max_rank == 8, "plait_view::dims");

/// Checks the host's description of its memory.
Shape checked_shape(plait_dtype dtype, const int64_t* dims, int64_t rank, int64_t bytes) {
  auto sizes = span_of(dims, rank, "dims");
  int bits = dtype_bits(static_cast<DType>(dtype));
  if (bits == 0)
    throw Error(Code::invalid_argument, cat("dtype ", static_cast<int>(dtype), " has no elements of fixed size"));
  if (rank > Shape::max_rank) throw Error(Code::invalid_argument, cat("rank ", rank, " is above ", Shape::max_rank));
  int64_t expected = 0;
  try {
    expected = packed_bytes(checked_elements(sizes, bits), bits);
  } catch (const Error& error) {
    throw Error(Code::invalid_argument, error.message());  // the numbers are the host's, not a file's
  }
  if (bytes != expected) {
    throw Error(Code::invalid_argument, cat("a tensor ", dtype_name(static_cast<DType>(dtype)), Shape(sizes).text(),
                                            " has ", expected, " bytes, got ", bytes));
  }
  return Shape(sizes);
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_tensor_copy(plait_dtype dtype, const int64_t* dims, int64_t rank, const void* data, int64_t bytes,
                               plait_tensor** out) {
  return create(out, [&] {
    Shape shape = checked_shape(dtype, dims, rank, bytes);
    auto made = share(Tensor(static_cast<DType>(dtype), shape));
    if (data && bytes > 0) std::memcpy(made->data(), data, static_cast<size_t>(bytes));
    return made;
  });
}

plait_status plait_tensor_borrow(plait_dtype dtype, const int64_t* dims, int64_t rank, void* data, int64_t bytes,
                                 plait_tensor** out) {
  return create(out, [&] {
    Shape shape = checked_shape(dtype, dims, rank, bytes);
    if (bytes > 0) required(data, "data");
    auto blob = borrow_blob(static_cast<std::byte*>(data), bytes, nullptr);
    return share(Tensor(static_cast<DType>(dtype), shape, blob));
  });
}

plait_status plait_tensor_view(plait_tensor* tensor, plait_view* out) {
  return guarded([&] {
    auto found = object_of<Tensor>(tensor);
    plait_view view{};
    view.dtype = static_cast<plait_dtype>(found->dtype());
    view.rank = found->shape().rank();
    std::copy(found->shape().begin(), found->shape().end(), view.dims);
    view.elements = found->elements();
    view.bytes = found->bytes();
    view.data = found->data();
    fill(out, view);
  });
}

plait_status plait_tensor_of_text(const char* text, int64_t length, plait_tensor** out) {
  return create(out, [&] { return text_tensor(text_of(text, length, "text")); });
}

const char* plait_tensor_text(plait_tensor* tensor) {
  const char* text = "";
  guarded([&] {
    auto found = object_of<Tensor>(tensor);
    // Only results of the library have a byte after the last element.
    bool terminated = found->dtype() == DType::u8 && found->blob() && found->blob()->size() == found->bytes() + 1;
    if (!terminated) throw Error(Code::invalid_argument, "the tensor is no text result");
    text = found->as<const char>();
  });
  return text;
}

plait_status plait_tensor_read(const char* path, plait_dtype expected, plait_tensor** out) {
  return create(out, [&] {
    const std::string name(required(path, "path"));
    auto file = read_file(name);
    try {
      return share(read_npy(file, static_cast<DType>(expected)));
    } catch (const Error& error) {
      throw Error(error.code(), cat(quote(name), ": ", error.message()), error.hint());
    }
  });
}

plait_status plait_tensor_write(plait_tensor* tensor, const char* path) {
  return guarded([&] {
    const auto found = object_of<Tensor>(tensor);
    const std::string header = npy_header(found->dtype(), found->shape());
    FileWriter file(std::string(required(path, "path")));
    file.write(header);
    file.write(std::span(static_cast<const std::byte*>(found->data()), static_cast<size_t>(found->bytes())));
    file.finish();
  });
}

plait_status plait_tensor_release(plait_tensor* tensor) { return release<Tensor>(tensor); }

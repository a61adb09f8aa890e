// Tensors of the C API.
#include <string_view>

#include "bindings/c/objects.h"
#include "core/base/file_writer.h"
#include "core/base/mapped_file.h"
#include "core/base/npy.h"
#include "core/base/npz.h"
#include "core/base/packed_list.h"
#include "core/base/paths.h"
#include "core/base/strings.h"

namespace plait::c_api {

std::shared_ptr<Tensor> text_tensor(std::string_view text) {
  auto blob = make_blob(static_cast<int64_t>(text.size()) + 1);  // zeroed: the final NUL
  std::memcpy(blob->mutable_data(), text.data(), text.size());
  return share(Tensor(DType::u8, Shape{static_cast<int64_t>(text.size())}, blob));
}

namespace {

static_assert(PLAIT_STRING == static_cast<int>(DType::string));
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
  if (dtype == PLAIT_STRING ? bytes < expected : bytes != expected) {
    throw Error(Code::invalid_argument, cat("a tensor ", dtype_name(static_cast<DType>(dtype)), Shape(sizes).text(),
                                            " has ", expected, " bytes, got ", bytes));
  }
  return Shape(sizes);
}

/// Refuses memory that is no tensor of strings, nor a list of such. How many elements are numbers of lists.
int64_t check_strings(const Tensor& tensor) { return check_packed_string_list(tensor.view(), host_bytes(tensor)); }

/// The parts of a list. Throws Error(invalid_argument).
std::vector<ListPart> parts_of(const Tensor& list) {
  std::optional<std::vector<ListPart>> parts = parts_of_list(list.view());
  if (!parts)
    throw Error(Code::invalid_argument, cat("a tensor ", dtype_name(list.dtype()), list.shape().text(), " is no list of tensors"));
  return std::move(*parts);
}

}  // namespace

int64_t host_bytes(const Tensor& tensor) {
  if (tensor.dtype() != DType::string || !tensor.blob()) return tensor.bytes();
  return tensor.blob()->size() - tensor.offset();
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_tensor_copy(plait_dtype dtype, const int64_t* dims, int64_t rank, const void* data, int64_t bytes,
                               plait_tensor** out) {
  return create(out, [&] {
    Shape shape = checked_shape(dtype, dims, rank, bytes);
    const bool strings = dtype == PLAIT_STRING && data;
    auto made = share(strings ? Tensor(DType::string, shape, make_blob(bytes)) : Tensor(static_cast<DType>(dtype), shape));
    if (data && bytes > 0) std::memcpy(made->data(), data, static_cast<size_t>(bytes));
    if (strings) check_strings(*made);
    return made;
  });
}

plait_status plait_tensor_borrow(plait_dtype dtype, const int64_t* dims, int64_t rank, void* data, int64_t bytes,
                                 plait_tensor** out) {
  return create(out, [&] {
    Shape shape = checked_shape(dtype, dims, rank, bytes);
    if (bytes > 0) required(data, "data");
    auto blob = borrow_blob(static_cast<std::byte*>(data), bytes, nullptr);
    auto made = share(Tensor(static_cast<DType>(dtype), shape, blob));
    if (dtype == PLAIT_STRING) check_strings(*made);
    return made;
  });
}

plait_status plait_tensor_list(plait_dtype dtype, plait_tensor* const* parts, int64_t count, plait_tensor** out) {
  return create(out, [&] {
    const auto type = static_cast<DType>(dtype);
    if (dtype_bits(type) < 8 || dtype_bits(type) > 64)
      throw Error(Code::invalid_argument, cat("dtype ", static_cast<int>(dtype), " has no lists: elements of a list have 8 to 64 bits"));
    std::vector<std::shared_ptr<Tensor>> kept;
    std::vector<TensorView> views;
    int64_t before = 0;
    for (plait_tensor* part : span_of(parts, count, "parts")) {
      kept.push_back(object_of<Tensor>(part));
      views.push_back(kept.back()->view());
      if (kept.back()->dtype() != type)
        throw Error(Code::invalid_argument, cat("part ", views.size() - 1, " is ", dtype_name(kept.back()->dtype()),
                                                ", expected ", dtype_name(type), " as the list"));
      if (type != DType::string) continue;
      if (count == 1) before = check_strings(*kept.back());  // perhaps a list itself
      else check_packed_strings(views.back(), host_bytes(*kept.back()));
    }
    return share(type == DType::string ? packed_string_list(views, before) : packed_list(type, views));
  });
}

plait_status plait_tensor_parts(plait_tensor* list, int64_t* count) {
  return guarded([&] {
    *required(count, "count") = 0;
    *count = std::ssize(parts_of(*object_of<Tensor>(list)));
  });
}

plait_status plait_tensor_part(plait_tensor* list, int64_t index, plait_tensor** out) {
  return create(out, [&] {
    const auto found = object_of<Tensor>(list);
    const std::vector<ListPart> parts = parts_of(*found);
    if (index < 0 || index >= std::ssize(parts))
      throw Error(Code::invalid_argument, cat("there is no part ", index, ": the list has ", parts.size()));
    const ListPart& part = parts[static_cast<size_t>(index)];
    if (found->dtype() == DType::string) return share(packed_string_part(found->view(), part, check_strings(*found)));
    const int64_t offset = found->offset() + part.offset * (dtype_bits(found->dtype()) / 8);
    return share(Tensor(found->dtype(), part.shape, found->blob(), offset));
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
    view.bytes = host_bytes(*found);
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
    // The array of an archive, unless that is a folder.
    constexpr std::string_view archive = ".npz/";
    const size_t at = name.rfind(archive);
    const bool inside = at != std::string::npos && !is_directory(name.substr(0, at + 4));
    std::shared_ptr<const Blob> file = read_file(inside ? name.substr(0, at + 4) : name);
    try {
      if (inside) file = npz_member(*file, std::string_view(name).substr(at + archive.size()));
      return share(read_npy(file, static_cast<DType>(expected)));
    } catch (const Error& error) {
      throw Error(error.code(), cat(quote(name), ": ", error.message()), error.hint());
    }
  });
}

plait_status plait_tensor_write(plait_tensor* tensor, const char* path) {
  return guarded([&] {
    const auto found = object_of<Tensor>(tensor);
    const std::string target(required(path, "path"));
    if (found->dtype() == DType::string) {
      check_packed_strings(found->view(), host_bytes(*found));
      const std::string all = npy_of_strings(found->view());
      FileWriter file(target, FileWriter::At::whole);
      file.write(all);
      return file.finish();
    }
    const std::string header = npy_header(found->dtype(), found->shape());
    FileWriter file(target, FileWriter::At::whole);
    file.write(header);
    file.write(std::span(static_cast<const std::byte*>(found->data()), static_cast<size_t>(found->bytes())));
    file.finish();
  });
}

plait_status plait_tensor_release(plait_tensor* tensor) { return release<Tensor>(tensor); }

#pragma once
// Arrays in ggml's types.
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/tensor.h"

namespace plait::gguf {

/// ggml's types of elements, by its numbers.
enum class Type : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30
};

/// "q4_k"; "type 99" for one that is not known.
std::string type_name(Type type);

/// An array of the file, row-major: a row is whole blocks.
struct Entry {
  Type type = Type::f32;
  Shape shape;
  std::shared_ptr<const Blob> blob;
  int64_t offset = 0, bytes = 0;

  const std::byte* data() const { return blob->data() + offset; }
};

/// A block of a type: its elements and bytes.
struct BlockForm {
  int64_t elements = 1, bytes = 4;
};
/// Throws Error(unsupported), naming the tensor, for types that cannot be read.
BlockForm form_of(Type type, const std::string& tensor);

}  // namespace plait::gguf

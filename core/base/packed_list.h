#pragma once
// A list of tensors of one element type as one tensor of that type, [n]: how graphs hold ONNX's sequences, and its optionals,
// which are lists of at most one. A list of lists is a list of such tensors. So every op and buffer that moves tensors moves
// lists too.
//
// In memory: the number of parts, then the rank and the sizes of each, as i64; then their elements. Elements have 8 to 64 bits. Lists
// of packed strings (core/base/strings.h) have the texts of all parts after them: pack_list does not make these.
#include <optional>
#include <span>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

struct ListPart {
  Shape shape;
  int64_t offset = 0;  ///< of its first element in the list
};

/// The parts of a list; nullopt if the array is not one (lists come from hosts and files).
std::optional<std::vector<ListPart>> parts_of_list(const TensorView& list);

/// How many elements before those of the tensors are numbers; nullopt if the array is no list of this depth. 0: a tensor, which has
/// none. 2: a list of at most one list, as an optional of a sequence is: several lists would have theirs in between.
std::optional<int64_t> numbers_of_list(const TensorView& list, int depth = 1);

/// The part as a tensor, in the list's memory.
TensorView view_of(const TensorView& list, const ListPart& part);

/// The size of a list of tensors of these shapes.
int64_t list_elements(DType dtype, std::span<const Shape> parts);

/// Writes the list to `to`, which has the size that `list_elements` returns.
void pack_list(std::span<const TensorView> parts, const TensorView& to);

/// The same as a new tensor. An empty list has `dtype`, others that of their parts.
Tensor packed_list(DType dtype, std::span<const TensorView> parts);

}  // namespace plait

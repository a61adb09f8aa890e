#include "core/base/packed_list.h"

#include <cstring>

namespace plait {

namespace {

constexpr int64_t word = sizeof(int64_t);

/// Elements of the numbers before the elements of the parts.
int64_t header_elements(DType dtype, int64_t words) { return words * word / (dtype_bits(dtype) / 8); }

bool holds_lists(DType dtype) { return dtype_bits(dtype) >= 8 && dtype_bits(dtype) <= 64; }

}  // namespace

std::optional<std::vector<ListPart>> parts_of_list(const TensorView& list) {
  if (!holds_lists(list.dtype) || list.shape.rank() != 1) return std::nullopt;
  int64_t at = 0;
  auto next = [&](int64_t& out) {
    if ((at + 1) * word > list.bytes()) return false;
    std::memcpy(&out, list.data + at++ * word, word);
    return true;
  };
  int64_t count = 0;
  if (!next(count) || count < 0 || count > list.bytes() / word) return std::nullopt;
  std::vector<ListPart> out(static_cast<size_t>(count));
  for (ListPart& part : out) {
    int64_t rank = 0, total = 1;
    if (!next(rank) || rank < 0 || rank > Shape::max_rank) return std::nullopt;
    for (int64_t i = 0; i < rank; ++i) {
      int64_t size = 0;
      if (!next(size) || size < 0 || __builtin_mul_overflow(total, size, &total)) return std::nullopt;
      part.shape.push_back(size);
    }
  }
  int64_t offset = header_elements(list.dtype, at);
  for (ListPart& part : out) {
    part.offset = offset;
    const int64_t size = part.shape.elements();
    if (size < 0 || size > list.elements() - offset) return std::nullopt;
    offset += size;
  }
  if (offset != list.elements()) return std::nullopt;
  return out;
}

std::optional<int64_t> numbers_of_list(const TensorView& list, int depth) {
  if (depth == 0) return 0;
  const std::optional<std::vector<ListPart>> parts = parts_of_list(list);
  if (!parts || (depth > 1 && parts->size() > 1)) return std::nullopt;
  if (parts->empty()) return list.elements();
  const std::optional<int64_t> within = numbers_of_list(view_of(list, parts->front()), depth - 1);
  if (!within) return std::nullopt;
  return parts->front().offset + *within;
}

TensorView view_of(const TensorView& list, const ListPart& part) {
  return {list.data + part.offset * (dtype_bits(list.dtype) / 8), list.dtype, part.shape};
}

int64_t list_elements(DType dtype, std::span<const Shape> parts) {
  int64_t words = 1, elements = 0;
  for (const Shape& part : parts) {
    words += 1 + part.rank();
    elements += part.elements();
  }
  return header_elements(dtype, words) + elements;
}

void pack_list(std::span<const TensorView> parts, const TensorView& to) {
  std::byte* at = to.data;
  auto write = [&](int64_t number) {
    std::memcpy(at, &number, word);
    at += word;
  };
  write(static_cast<int64_t>(parts.size()));
  for (const TensorView& part : parts) {
    write(part.shape.rank());
    for (int64_t size : part.shape) write(size);
  }
  for (const TensorView& part : parts) {
    if (part.bytes() > 0) std::memcpy(at, part.data, static_cast<size_t>(part.bytes()));
    at += part.bytes();
  }
}

Tensor packed_list(DType dtype, std::span<const TensorView> parts) {
  std::vector<Shape> shapes;
  for (const TensorView& part : parts) shapes.push_back(part.shape);
  Tensor out(dtype, {list_elements(dtype, shapes)});
  pack_list(parts, out.view());
  return out;
}

}  // namespace plait

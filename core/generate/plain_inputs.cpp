#include "core/generate/plain_inputs.h"

#include <algorithm>
#include <cstring>

#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/encoder.h"

namespace plait {
namespace {

size_t rank_of(const Type& type) { return type.dims ? type.dims->size() : 0; }

/// Integers in a type.
Tensor numbers_of(DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
  if (is_float(dtype)) {
    const Tensor wide = Tensor::of<double>(DType::f64, shape, std::vector<double>(values.begin(), values.end()));
    return materialize({{}, wide, {{RecipeStep::Kind::cast, {}, dtype}}});
  }
  Tensor out(dtype, shape);
  const auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(out.data() + i * size, &values[i], size);
  return out;
}

/// [1, count] numbers first, first + step, ...
Tensor counted(DType dtype, int64_t count, int64_t first, int64_t step) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + i * step);
  return numbers_of(dtype, {1, count}, values);
}

Tensor row_of_ids(DType dtype, std::span<const int32_t> tokens) {
  Tensor out(dtype, {1, static_cast<int64_t>(tokens.size())});
  auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t id = std::max(tokens[i], 0);  // a row stands for the others
    std::memcpy(out.data() + i * size, &id, size);
  }
  return out;
}

/// The rows of negative ids, in order; at least one.
Tensor rows_given(std::span<const int32_t> tokens, GivenList given, int64_t size) {
  const auto count = std::count_if(tokens.begin(), tokens.end(), [](int32_t id) { return id < 0; });
  Tensor out(DType::f32, {std::max<int64_t>(count, 1), size});
  auto* to = reinterpret_cast<float*>(out.data());
  for (int32_t id : tokens)
    if (id < 0) to = std::copy_n(row_of(given, id), size, to);
  return out;
}

Tensor places_given(std::span<const int32_t> tokens) {
  std::vector<int32_t> out;
  int32_t rows = 0;
  for (int32_t id : tokens) out.push_back(id < 0 ? rows++ : -1);
  return Tensor::of<int32_t>(DType::i32, {1, static_cast<int64_t>(out.size())}, out);
}

}  // namespace

PlainInputs::PlainInputs(const Graph& graph, const DecoderInterface& interface, int64_t context)
    : interface_(interface) {
  read_caches(graph, context);
  for (const auto& counter : interface_.counters)  // at 0 before the first token
    shapes_.push_back(rank_of(graph.value(counter.input).type) ? Shape{1} : Shape{});
  for (ValueId id : graph.inputs) inputs_.push_back(input_of(graph, id));
  if (interface_.mask != no_value) mask_by_token_ = rank_of(graph.value(interface_.mask).type) == 4;
  if (interface_.positions != no_value) flat_positions_ = rank_of(graph.value(interface_.positions).type) == 1;
  if (interface_.branch != no_value && rank_of(graph.value(interface_.branch).type)) branch_shape_ = {1};
}

PlainInputs::Input PlainInputs::input_of(const Graph& graph, ValueId id) const {
  const DType dtype = graph.value(id).type.dtype;
  if (id == interface_.ids) return {Role::ids, dtype};
  if (id == interface_.mask) return {Role::mask, dtype};
  if (id == interface_.positions) return {Role::positions, dtype};
  if (id == interface_.branch) return {Role::branch, dtype};
  if (id == interface_.given) return {Role::given, dtype};
  if (id == interface_.given_at) return {Role::given_at, dtype};
  if (id == interface_.encoded_mask) return {Role::encoded_mask, dtype};
  for (size_t i = 0; i < interface_.encoded.size(); ++i)
    if (interface_.encoded[i] == id) return {Role::encoded, dtype, i};
  for (size_t i = 0; i < interface_.caches.size(); ++i)
    if (interface_.caches[i].past == id) return {Role::carried, dtype, i};
  for (size_t i = 0; i < interface_.counters.size(); ++i)
    if (interface_.counters[i].input == id) return {Role::carried, dtype, interface_.caches.size() + i};
  throw Error(Code::unsupported, cat("input ", quote(graph.value(id).name), " has no role that Plait knows"),
              "run the model through a session");
}

void PlainInputs::read_caches(const Graph& graph, int64_t context) {
  // The host chooses the length of a buffer.
  constexpr int64_t usual_length = 2048;
  if (interface_.fixed_buffers) {
    const int64_t chosen = context > 0 ? std::min(context, usual_length) : usual_length;
    for (const auto& cache : interface_.caches) {  // a ring takes any number of tokens
      const int64_t length = cache.ring ? 0 : cache.length ? cache.length : chosen;
      if (length) buffer_length_ = buffer_length_ ? std::min(buffer_length_, length) : length;
    }
  }
  auto batch = (*graph.value(interface_.ids).type.dims)[0].single_symbol();
  for (const auto& cache : interface_.caches) {
    const Type& type = graph.value(cache.past).type;
    Shape shape;
    for (size_t axis = 0; axis < cache.dims.size(); ++axis) {
      Dim dim = batch ? cache.dims[axis].substitute(*batch, Dim(1)) : cache.dims[axis];
      bool length = static_cast<int>(axis) == cache.axis;
      if (!dim.is_constant() && axis != 0 && !length)
        throw Error(Code::unsupported, cat("the size of input ", quote(graph.value(cache.past).name),
                                           " in dimension ", axis, " is not known: ", dim.text(graph.symbols)));
      shape.push_back(length ? 0 : dim.is_constant() ? dim.constant() : 1);
    }
    if (interface_.fixed_buffers) shape[cache.axis] = cache.length ? cache.length : buffer_length_;
    shapes_.push_back(shape);
    if (cache.axis < 0 || cache.idle) continue;
    Shape one = shape;
    one[cache.axis] = 1;
    token_bytes_ += packed_bytes(one.elements(), dtype_bits(type.dtype));
  }
}

/// In the file's shape: [1, count], [count] or [rows, 1, count].
Tensor PlainInputs::positions(DType dtype, std::span<const int32_t> tokens, int64_t past, int64_t position,
                              GivenList given) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (!interface_.position_rows) {
    Tensor out = counted(dtype, count, past, 1);
    return flat_positions_ ? out.reshaped({count}) : out;
  }
  std::vector<int64_t> values(static_cast<size_t>(interface_.position_rows * count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const GivenPlace place = interface_.takes_places() ? place_of(given, tokens[i]) : GivenPlace();
    for (size_t row = 0; row < static_cast<size_t>(interface_.position_rows); ++row)
      values[row * tokens.size() + i] = position + (interface_.takes_places() ? place.offset[row] : 0);
    position += place.advance;
  }
  return numbers_of(dtype, {interface_.position_rows, 1, count}, values);
}

/// [1, 1, count, keys]: causal, each token attends to earlier ones and itself. A float mask is added to scores.
Tensor PlainInputs::causal_mask(DType dtype, int64_t past, int64_t count) const {
  int64_t keys = buffer_length_ ? buffer_length_ : past + count;
  Tensor seen = counted(dtype, 1, is_float(dtype) ? 0 : 1, 0),
         hidden = counted(dtype, 1, is_float(dtype) ? -65504 : 0, 0);
  Tensor out(dtype, {1, 1, count, keys});
  auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < keys; ++j)
      std::memcpy(out.data() + static_cast<size_t>(i * keys + j) * size, (j <= past + i ? seen : hidden).data(),
                  size);
  return out;
}

/// A past that is never read only needs the common length of all.
Tensor PlainInputs::carried(size_t number, DType dtype, int64_t past, const Tensor& kept) const {
  if (kept.present()) return kept;
  const auto& caches = interface_.caches;
  Shape shape = shapes_[number];
  if (number < caches.size() && caches[number].idle && !buffer_length_) shape[caches[number].axis] = past;
  return Tensor(dtype, shape);
}

std::vector<Tensor> PlainInputs::of(std::span<const int32_t> tokens, int64_t past, int64_t position,
                                    std::span<const Tensor> carried_values, GivenList given,
                                    std::span<const Tensor> encoded) const {
  if (encoded.size() < interface_.encoded.size())
    throw Error(Code::unsupported, "the decoder attends to what an encoder makes, and there is no encoder");
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<Tensor> out;
  for (const Input& input : inputs_) {
    const DType dtype = input.dtype;
    switch (input.role) {
      case Role::ids: out.push_back(row_of_ids(dtype, tokens)); break;
      case Role::mask:
        out.push_back(mask_by_token_ ? causal_mask(dtype, past, count) : counted(dtype, past + count, 1, 0));
        break;
      case Role::positions:
        out.push_back(positions(dtype, tokens, past, interface_.takes_places() ? position : past, given));
        break;
      case Role::encoded: out.push_back(encoded[input.number]); break;
      case Role::encoded_mask:  // keys and hidden states have the encoder's tokens in the last dimension but one
        out.push_back(ones(dtype, encoded[0].shape().back(2)));
        break;
      case Role::given: out.push_back(rows_given(tokens, given, interface_.given_size)); break;
      case Role::given_at: out.push_back(places_given(tokens)); break;
      case Role::branch: out.push_back(counted(dtype, 1, past > 0, 0).reshaped(branch_shape_)); break;
      case Role::carried: out.push_back(carried(input.number, dtype, past, carried_values[input.number])); break;
    }
  }
  return out;
}

}  // namespace plait

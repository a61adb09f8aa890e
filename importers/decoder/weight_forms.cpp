#include "importers/decoder/weight_forms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace plait::decoder {
namespace {

int64_t inputs_of(const Weight& weight) {
  return weight.blocks ? weight.blocks->scales.shape()[1] * weight.blocks->block : weight.tensor.shape()[1];
}

/// Copies rows of equal bytes, those of an expert's parts in turn: [experts * parts] arrays [n, ...] to [experts, n * parts, ...].
template <class ArrayOf>
Tensor interleaved(std::span<const Weight> weights, int64_t parts, DType dtype, int64_t row_elements,
                   ArrayOf array_of) {
  const int64_t n = weights[0].tensor.shape()[0], experts = static_cast<int64_t>(weights.size()) / parts;
  Tensor out(dtype, Shape{experts, n * parts, row_elements});
  const auto row = static_cast<size_t>(row_elements * dtype_bits(dtype) / 8);
  for (int64_t expert = 0; expert < experts; ++expert)
    for (int64_t part = 0; part < parts; ++part) {
      const Tensor from = array_of(weights[static_cast<size_t>(expert * parts + part)]);
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(out.data() + static_cast<size_t>((expert * n + i) * parts + part) * row,
                    from.data() + static_cast<size_t>(i) * row, row);
    }
  return out;
}

/// What the codes stand for.
Tensor halves_of(const Weight& weight) {
  const Weight::Blocks& blocks = *weight.blocks;
  const int64_t elements = weight.tensor.shape()[0] * inputs_of(weight), each = 8 / blocks.bits;
  Tensor out(DType::f16, Shape{weight.tensor.shape()[0], inputs_of(weight)});
  const uint8_t* codes = weight.tensor.as<uint8_t>();
  for (int64_t i = 0; i < elements; ++i) {
    const int code = codes[i / each] >> (i % each * blocks.bits) & ((1 << blocks.bits) - 1);
    const int64_t group = i / blocks.block;
    const float zero = blocks.zeros ? blocks.zeros->as<float>()[group] : static_cast<float>(1 << (blocks.bits - 1));
    out.as<Float16>()[i] = to_float16((static_cast<float>(code) - zero) * blocks.scales.as<float>()[group]);
  }
  return out;
}

Tensor wide(const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return tensor;
  Tensor out(DType::f32, tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i)
    out.as<float>()[i] =
        tensor.dtype() == DType::f16 ? to_float(tensor.as<Float16>()[i]) : to_float(tensor.as<BFloat16>()[i]);
  return out;
}

}  // namespace

std::optional<Tensor> packed_zeros(const Weight::Blocks& blocks) {
  const int64_t rows = blocks.zeros->shape()[0], count = blocks.zeros->shape()[1], each = 8 / blocks.bits;
  const auto most = static_cast<float>((1 << blocks.bits) - 1);
  Tensor out(DType::u8, Shape{rows, (count + each - 1) / each});
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i) {
      const float zero = blocks.zeros->as<float>()[row * count + i];
      if (!(zero >= 0 && zero <= most && std::nearbyint(zero) == zero)) return std::nullopt;
      out.as<uint8_t>()[row * out.shape()[1] + i / each] |=
          static_cast<uint8_t>(static_cast<int>(zero) << (i % each * blocks.bits));
    }
  return out;
}

ExpertStack stack_floats(std::span<const Weight> weights, int64_t parts) {
  const auto dtype_of = [](const Weight& weight) { return weight.blocks ? DType::f16 : weight.tensor.dtype(); };
  const DType first = dtype_of(weights[0]);
  const bool same =
      std::all_of(weights.begin(), weights.end(), [&](const Weight& one) { return dtype_of(one) == first; });
  const auto floats = [&](const Weight& weight) {
    const Tensor own = weight.blocks ? halves_of(weight) : weight.tensor;
    return same ? own : wide(own);
  };
  return {.weights = interleaved(weights, parts, same ? first : DType::f32, inputs_of(weights[0]), floats)};
}

ExpertStack stack_experts(std::span<const Weight> weights, int64_t parts) {
  for (const Weight& one : weights)
    if (one.inputs_first) throw Error(Code::unsupported, "weights of experts are [k, n], expected [n, k]");
  const auto& form = weights[0].blocks;
  const bool codes = form && std::all_of(weights.begin(), weights.end(), [&](const Weight& one) {
                       return one.blocks && one.blocks->bits == form->bits && one.blocks->block == form->block &&
                              one.blocks->zeros.has_value() == form->zeros.has_value() &&
                              (!one.blocks->zeros || packed_zeros(*one.blocks));
                     });
  if (!codes) return stack_floats(weights, parts);
  const int64_t k = inputs_of(weights[0]), groups = k / form->block, bits = form->bits;
  ExpertStack out{.bits = bits, .block = form->block};
  out.weights = interleaved(weights, parts, DType::u8, k * bits / 8, [](const Weight& one) { return one.tensor; });
  out.scales = interleaved(weights, parts, DType::f32, groups, [](const Weight& one) { return one.blocks->scales; });
  if (form->zeros)
    out.zeros = interleaved(weights, parts, DType::u8, (groups * bits + 7) / 8,
                            [](const Weight& one) { return *packed_zeros(*one.blocks); });
  return out;
}

}  // namespace plait::decoder

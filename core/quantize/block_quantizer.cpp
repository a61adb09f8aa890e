#include "core/quantize/block_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"

namespace plait {
namespace {

/// The values as a dtype has them.
std::vector<float> rounded_to(DType dtype, std::vector<float> values) {
  if (dtype == DType::f32) return values;
  const auto count = static_cast<int64_t>(values.size());
  const Tensor wide = Tensor::of<float>(DType::f32, {count}, values);
  const Tensor back =
      materialize({{}, wide, {{RecipeStep::Kind::cast, {}, dtype}, {RecipeStep::Kind::cast, {}, DType::f32}}});
  std::memcpy(values.data(), back.data(), values.size() * sizeof(float));
  return values;
}

/// Codes of `bits` each, lowest first, row by row; a row begins at a whole byte.
Tensor packed_codes(std::span<const uint8_t> codes, int64_t rows, int64_t bits, const Shape& shape) {
  Tensor out(DType::u8, shape);
  const int64_t per_byte = 8 / bits, row_codes = static_cast<int64_t>(codes.size()) / std::max<int64_t>(rows, 1);
  const int64_t row_bytes = out.bytes() / std::max<int64_t>(rows, 1);
  auto* to = out.as<uint8_t>();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < row_codes; ++i)
      to[row * row_bytes + i / per_byte] =
          static_cast<uint8_t>(to[row * row_bytes + i / per_byte] | codes[static_cast<size_t>(row * row_codes + i)]
                                                                        << (i % per_byte * bits));
  return out;
}

}  // namespace

BlockQuantizer::BlockQuantizer(const BlockFormat& format, std::span<const float> weight, int64_t n, int64_t k,
                               ThreadPool& pool)
    : format_(format), weight_(weight), n_(n), k_(k), blocks_((k + format.block - 1) / format.block) {
  const auto zero = static_cast<float>(int64_t{1} << (format.stored_bits() - 1));
  const auto half = static_cast<float>(int64_t{1} << (format.bits - 1));
  lowest_ = format.symmetric ? zero - half : 0;
  highest_ = lowest_ + 2 * half - 1;
  const auto count = static_cast<size_t>(n * blocks_);
  scales_.resize(count);
  inverses_.resize(count);
  zeros_.assign(count, zero);
  pool.for_each(n, [&](int64_t row, int) {
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t begin = block * format_.block;
      choose(row, block,
             weight_.subspan(static_cast<size_t>(row * k_ + begin),
                             static_cast<size_t>(std::min(format_.block, k_ - begin))));
    }
  });
  scales_ = rounded_to(format.scales, std::move(scales_));
  for (size_t i = 0; i < count; ++i) inverses_[i] = scales_[i] == 0 ? 0 : 1 / scales_[i];
}

void BlockQuantizer::choose(int64_t row, int64_t block, std::span<const float> values) {
  const auto at = static_cast<size_t>(row * blocks_ + block);
  float least = 0, most = 0;
  for (const float value : values) {
    if (!std::isfinite(value))
      throw Error(Code::bad_model, cat("output ", row, " of the weight has a value that is not finite"));
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (format_.symmetric) {
    scales_[at] = (most > -least ? -most : -least) / static_cast<float>(int64_t{1} << (format_.bits - 1));
    return;
  }
  scales_[at] = (most - least) / (highest_ - lowest_);
  zeros_[at] = scales_[at] == 0 ? 0 : std::clamp(std::nearbyint(-least / scales_[at]), lowest_, highest_);
}

std::vector<uint8_t> BlockQuantizer::round_to_nearest(ThreadPool& pool) const {
  std::vector<uint8_t> out(static_cast<size_t>(n_ * k_));
  pool.for_each(n_, [&](int64_t row, int) {
    for (int64_t column = 0; column < k_; ++column) {
      const auto at = static_cast<size_t>(row * k_ + column);
      out[at] = code(row, column, weight_[at]);
    }
  });
  return out;
}

BlockWeight BlockQuantizer::packed(std::span<const uint8_t> codes) const {
  const int64_t bits = format_.stored_bits(), padded = blocks_ * format_.block;
  BlockWeight out{.n = n_, .k = k_, .bits = bits, .block = format_.block};
  std::vector<uint8_t> rows(static_cast<size_t>(n_ * padded));
  for (int64_t row = 0; row < n_; ++row)
    std::memcpy(rows.data() + row * padded, codes.data() + row * k_, static_cast<size_t>(k_));
  out.codes = packed_codes(rows, n_, bits, {n_, blocks_, format_.block * bits / 8});
  const Tensor wide = Tensor::of<float>(DType::f32, {n_, blocks_}, scales_);
  out.scales = materialize({{}, wide, {{RecipeStep::Kind::cast, {}, format_.scales}}});
  if (format_.symmetric) return out;
  const std::vector<uint8_t> zeros(zeros_.begin(), zeros_.end());
  const int64_t per_byte = 8 / bits;
  out.zeros = packed_codes(zeros, n_, bits, {n_, (blocks_ + per_byte - 1) / per_byte});
  return out;
}

}  // namespace plait

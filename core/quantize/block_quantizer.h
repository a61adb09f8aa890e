#pragma once
// Rounds a matrix to small integers in blocks.
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "importers/onnx/block_weights.h"

namespace plait {

class LoadProgress;
class ThreadPool;

struct BlockFormat {
  int64_t bits = 4;       ///< 2 to 8: a code has 2^bits values; 3 is stored in 4 bits, 5 to 7 in 8
  int64_t block = 32;     ///< inputs with one scale; a power of two, at least 16
  bool symmetric = true;  ///< the zero is in the middle of the codes; otherwise each block has its own
  DType scales = DType::f32;

  int64_t stored_bits() const { return bits <= 2 ? 2 : bits <= 4 ? 4 : 8; }
};

/// The blocks' scales and zeros are those of the weight that it is made with (static groups): a symmetric scale takes the largest
/// magnitude to the lowest code, an asymmetric one maps the least and the largest value, and 0, to codes.
class BlockQuantizer {
 public:
  /// `weight`: [n, k]; must outlive it. Throws Error(bad_model) for values that are not finite.
  BlockQuantizer(const BlockFormat& format, std::span<const float> weight, int64_t n, int64_t k, ThreadPool& pool);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  std::span<const float> weight() const { return weight_; }

  /// The nearest code for a value of this row and column, and what a code stands for.
  uint8_t code(int64_t row, int64_t column, float value) const {
    const auto at = static_cast<size_t>(row * blocks_ + column / format_.block);
    const float rounded = std::nearbyint(value * inverses_[at]) + zeros_[at];
    return static_cast<uint8_t>(rounded < lowest_ ? lowest_ : rounded > highest_ ? highest_ : rounded);
  }
  float value(int64_t row, int64_t column, uint8_t code) const {
    const auto at = static_cast<size_t>(row * blocks_ + column / format_.block);
    return (static_cast<float>(code) - zeros_[at]) * scales_[at];
  }

  /// Codes [n, k], each weight's nearest.
  std::vector<uint8_t> round_to_nearest(ThreadPool& pool) const;
  /// As a file has them.
  BlockWeight packed(std::span<const uint8_t> codes) const;

 private:
  void choose(int64_t row, int64_t block, std::span<const float> values);

  const BlockFormat format_;
  std::span<const float> weight_;
  int64_t n_, k_, blocks_;
  float lowest_ = 0, highest_ = 0;
  std::vector<float> scales_, inverses_, zeros_;  ///< [n, blocks]
};

/// The codes [n, k] that keep the products with the inputs seen, rather than each weight, near to the original's: column after column
/// is rounded, and what that changed is made up for by the columns to come (Frantar et al. 2022, "GPTQ", in the order of the
/// hessian's diagonal). `hessian`: f32 [k, k], the sum of x^T x over the inputs x; one of zeros gives the nearest codes. Throws
/// Error(cancelled).
std::vector<uint8_t> gptq(const BlockQuantizer& quantizer, std::span<const float> hessian, ThreadPool& pool,
                          LoadProgress* progress);

}  // namespace plait

#pragma once
// A row of logits that is read once, and then only where it matters: the largest of each block is kept.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace plait {

struct RankedToken {
  float logit = 0;
  int32_t id = 0;
  uint64_t weight = 0;  ///< core/base/token_weight.h

  /// The order of tokens: the largest logit first, of equal ones the lowest id.
  bool operator<(const RankedToken& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

/// Refers to the logits, which stay as they are. Thread-safe.
class LogitRow {
 public:
  static constexpr float lowest = -std::numeric_limits<float>::infinity();

  explicit LogitRow(std::span<const float> logits);

  size_t size() const { return logits_.size(); }
  bool has_nan() const { return has_nan_; }
  float largest() const { return largest_; }
  /// The lowest id of the largest logit. There is a logit, and none is NaN.
  int32_t largest_id() const;

  struct Sum {
    uint64_t weight = 0, count = 0;
  };
  /// Of all logits from `least` on. `per_unit`: of ChoiceSettings; their distance is less than weight_bits.
  Sum sum(double per_unit, float least) const;
  /// Those from `least` on and below `limit`, in the order of ids, without weights.
  std::vector<RankedToken> between(float least, float limit) const;
  /// The first `count`, or all if there are fewer, from `least` on, in any order and without weights.
  std::vector<RankedToken> first(size_t count, float least) const;
  /// How many logits are larger.
  size_t count_above(float logit) const;

 private:
  const float* block_at(size_t index, float* own) const;

  std::span<const float> logits_;
  std::vector<float> maxima_;
  float largest_ = lowest;
  bool has_nan_ = false;
};

}  // namespace plait

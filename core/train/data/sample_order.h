#pragma once
// The order of training samples.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// Endless shuffled order of a data set's samples; each epoch is shuffled anew from the seed. It does not depend on
/// batch size or number of ranks. Not thread-safe.
class SampleOrder {
 public:
  /// `digest` is the data set's. Throws Error(invalid_argument) if `samples` < 1.
  SampleOrder(int64_t samples, uint64_t seed, uint32_t digest);

  /// The next `count` samples; continues into the next epoch.
  std::vector<int64_t> next(int64_t count);

  int64_t epoch() const { return epoch_; }        ///< from 0
  int64_t position() const { return position_; }  ///< samples taken of this epoch, less than their number
  int64_t taken() const { return epoch_ * samples_ + position_; }

  /// Its position as a short line of text, and back. Throws Error(invalid_argument) if the text is of other data or
  /// malformed.
  std::string state() const;
  void resume(std::string_view state);

 private:
  void shuffle();

  int64_t samples_;
  uint64_t seed_;
  uint32_t digest_;
  int64_t epoch_ = 0, position_ = 0;
  std::vector<int64_t> order_;  ///< of this epoch
};

}  // namespace plait

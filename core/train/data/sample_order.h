#pragma once
// In which order samples are trained on.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// The samples of a data set, in an order drawn anew for each epoch from the seed, for ever. Who takes how many at once,
/// and how many ranks share a step's, changes nothing in the order. For one thread at a time.
class SampleOrder {
 public:
  /// `digest` is the data set's; `samples` is at least 1, or Error(invalid_argument).
  SampleOrder(int64_t samples, uint64_t seed, uint32_t digest);

  /// The numbers of the next `count` samples. They go on in the next epoch where one ends.
  std::vector<int64_t> next(int64_t count);

  int64_t epoch() const { return epoch_; }        ///< from 0 on
  int64_t position() const { return position_; }  ///< samples taken of this epoch, fewer than there are
  int64_t taken() const { return epoch_ * samples_ + position_; }

  /// Where it is, as a short line of text; and an order that goes on from there. Throws Error(invalid_argument) when the
  /// text is of other data, or none of these.
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

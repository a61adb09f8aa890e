#pragma once
// Cuts of a chain into stages of several seats: a stage's ranks take micro-batches in turn.
#include <cstdint>
#include <functional>
#include <vector>

namespace plait {

/// What a cut is made of, in seconds of a micro-batch; infinite for what must not be.
struct SeatCosts {
  /// Units [begin, end) on `seats` ranks from `first` on: what the stage takes for each micro-batch when all of them are busy.
  std::function<double(size_t begin, size_t end, int64_t first, int64_t seats)> stage;
  /// The message from the stage before to the one that begins with this unit, on the rank `first`. Unset: nothing.
  std::function<double(size_t begin, int64_t first)> message = {};
};

struct SeatCut {
  std::vector<int64_t> seats;  ///< ranks of each stage
  std::vector<int64_t> units;  ///< consecutive units of each stage
  double slowest_s = 0;        ///< of its stages and messages: what a full pipeline takes for each micro-batch
};

/// For each number of stages up to `most_stages` the cut whose slowest stage or message is the fastest; numbers without one are left
/// out. The dynamic program of PipeDream (Narayanan et al. 2019, section 3.1), with stages on consecutive ranks. Exact; takes
/// O(most_stages units^2 ranks^2).
std::vector<SeatCut> seat_cuts(size_t units, int64_t ranks, size_t most_stages, const SeatCosts& costs);

}  // namespace plait

#include "core/plan/search/seat_cuts.h"

#include <algorithm>
#include <limits>

namespace plait {
namespace {

/// The best cut of the first units on the first ranks, by its last stage.
struct Best {
  double slowest_s = std::numeric_limits<double>::infinity();
  size_t begin = 0;
  int64_t seats = 0;
};

class Cuts {
 public:
  Cuts(size_t units, int64_t ranks, size_t most_stages, const SeatCosts& costs)
      : units_(units),
        ranks_(ranks),
        costs_(costs),
        best_(most_stages + 1, std::vector<Best>((units + 1) * width())) {
    at(0, 0, 0).slowest_s = 0;
    for (size_t stages = 1; stages <= most_stages; ++stages) add_stage(stages);
  }

  std::vector<SeatCut> all() const {
    std::vector<SeatCut> out;
    for (size_t stages = 1; stages < best_.size(); ++stages)
      if (const Best& last = at(stages, units_, ranks_); last.slowest_s < std::numeric_limits<double>::infinity())
        out.push_back(cut(stages));
    return out;
  }

 private:
  size_t width() const { return static_cast<size_t>(ranks_) + 1; }
  const Best& at(size_t stages, size_t end, int64_t ranks) const {
    return best_[stages][end * width() + static_cast<size_t>(ranks)];
  }
  Best& at(size_t stages, size_t end, int64_t ranks) {
    return const_cast<Best&>(static_cast<const Cuts&>(*this).at(stages, end, ranks));
  }

  void add_stage(size_t stages) {
    for (size_t begin = stages - 1; begin < units_; ++begin)
      for (size_t end = begin + 1; end <= units_; ++end)
        for (int64_t seats = 1; seats <= ranks_; ++seats) {
          for (int64_t before = 0; before + seats <= ranks_; ++before) {
            double slowest_s = at(stages - 1, begin, before).slowest_s;
            if (slowest_s >= at(stages, end, before + seats).slowest_s) continue;
            slowest_s = std::max(slowest_s, costs_.stage(begin, end, before, seats));
            if (begin && costs_.message) slowest_s = std::max(slowest_s, costs_.message(begin, before));
            if (Best& one = at(stages, end, before + seats); slowest_s < one.slowest_s)
              one = {slowest_s, begin, seats};
          }
        }
  }

  SeatCut cut(size_t stages) const {
    SeatCut out{{}, {}, at(stages, units_, ranks_).slowest_s};
    size_t end = units_;
    int64_t ranks = ranks_;
    for (; stages > 0; --stages) {
      const Best& last = at(stages, end, ranks);
      out.seats.insert(out.seats.begin(), last.seats);
      out.units.insert(out.units.begin(), static_cast<int64_t>(end - last.begin));
      end = last.begin;
      ranks -= last.seats;
    }
    return out;
  }

  const size_t units_;
  const int64_t ranks_;
  const SeatCosts& costs_;
  std::vector<std::vector<Best>> best_;  ///< [stages][end, ranks]
};

}  // namespace

std::vector<SeatCut> seat_cuts(size_t units, int64_t ranks, size_t most_stages, const SeatCosts& costs) {
  return Cuts(units, ranks, std::min<size_t>(most_stages, static_cast<size_t>(ranks)), costs).all();
}

}  // namespace plait

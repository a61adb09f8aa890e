// Schedules that update weights while micro-batches are in flight. A window of steps ends with nothing in flight.
#include <algorithm>
#include <deque>

#include "core/schedule/generators.h"

namespace plait {
namespace {

using Kind = Action::Kind;

/// 1F1B over all micro-batches of a window, with at most `ahead` forwards in front of the first backward.
Schedule window(const ScheduleShape& shape, int32_t ahead) {
  const int32_t p = shape.ranks, n = shape.steps * shape.micro_batches;
  Schedule out{p, n, straight_seats(p, 1), {}};
  for (int32_t i = 0; i < p; ++i) {
    auto& list = out.ranks.emplace_back();
    const int32_t in_front = std::min({n, p - 1 - i, ahead});
    for (int32_t k = 0; k < n + in_front; ++k) {
      if (k < n) list.push_back({Kind::forward, i, k});
      if (k >= in_front) list.push_back({Kind::backward, i, k - in_front});
    }
  }
  return out;
}

}  // namespace

// PipeDream (Narayanan et al. 2019): an update after the last backward of each step's micro-batches; a forward reads
// the newest weights, and its backward the same ones, which are kept (weight stashing).
Schedule make_pipedream(const ScheduleShape& shape, int32_t) {
  Schedule out = window(shape, shape.ranks);
  for (auto& list : out.ranks) {
    std::vector<Action> with;
    for (const Action& one : list) {
      with.push_back(one);
      if (one.kind == Kind::backward && (one.micro_batch + 1) % shape.micro_batches == 0)
        with.push_back({Kind::update, one.stage, one.micro_batch / shape.micro_batches});
    }
    list = std::move(with);
  }
  return out;
}

// PipeDream-2BW (Narayanan et al. 2021): the micro-batches of step t read the weights that step t - 2 made, on all
// stages; two versions. With fewer than p - 1 micro-batches the pipeline is filled no further than that allows.
// `lag`: the update comes so many backwards after the step's last, which gives time for a norm over all stages; at
// the latest before the first forward that reads its weights.
Schedule make_two_bw(const ScheduleShape& shape, int32_t lag) {
  struct Due {
    int32_t backwards, step;
  };
  const int32_t m = shape.micro_batches;
  if (shape.global_norm) lag = std::max(lag, shape.ranks - 1);
  Schedule out = window(shape, m);
  for (int32_t stage = 0; stage < shape.ranks; ++stage) {
    auto& list = out.ranks[static_cast<size_t>(stage)];
    std::vector<Action> with;
    std::deque<Due> due;
    auto update = [&] {
      with.push_back({Kind::update, stage, due.front().step});
      due.pop_front();
    };
    for (Action one : list) {
      if (one.kind == Kind::forward) {
        one.version = std::max(one.micro_batch / m - 1, 0);
        while (!due.empty() && one.version > due.front().step) update();
      }
      with.push_back(one);
      if (one.kind != Kind::backward) continue;
      for (Due& each : due) --each.backwards;
      if ((one.micro_batch + 1) % m == 0) due.push_back({lag, one.micro_batch / m});
      while (!due.empty() && due.front().backwards <= 0) update();
    }
    while (!due.empty()) update();
    list = std::move(with);
  }
  return out;
}

}  // namespace plait

#include "core/plan/simulate/slot_curve.h"

#include <algorithm>

#include "core/exec/program.h"

namespace plait {
namespace {

/// What an action adds to its rank's slots when it begins, and removes when it has ended.
struct Change {
  double begins = 0, ends = 0;
};

Change change_of(const Action& action, const StageCosts& costs) {
  const auto of = [&](SlotPool pool) { return costs.slots[static_cast<size_t>(pool)]; };
  const double to_input = of(SlotPool::forward_to_input), to_weight = of(SlotPool::forward_to_weight),
               between = of(SlotPool::input_to_weight);
  switch (action.kind) {
    case Action::Kind::forward: return {to_input + to_weight, 0};
    case Action::Kind::backward: return {0, to_input + to_weight};
    case Action::Kind::input_gradient: return {between, to_input};
    case Action::Kind::weight_gradient: return {0, to_weight + between};
    case Action::Kind::update: break;
  }
  return {};
}

}  // namespace

std::vector<std::vector<SlotPoint>> slot_curves(const Schedule& schedule, const Timeline& timeline,
                                                const std::vector<StageCosts>& stages) {
  std::vector<std::vector<SlotPoint>> out(schedule.ranks.size());
  for (size_t rank = 0; rank < out.size(); ++rank) {
    double held = 0;
    for (size_t stage = 0; stage < schedule.seats.size(); ++stage)
      for (const int32_t seat : schedule.seats[stage])
        if (seat == static_cast<int32_t>(rank)) held += stages[stage].slots[static_cast<size_t>(SlotPool::action)];
    out[rank].push_back({0, held});
  }
  // A rank runs one action after the other, so its spans are in order.
  for (const TimelineSpan& span : timeline.spans) {
    const Change change = change_of(span.action, stages[static_cast<size_t>(span.action.stage)]);
    std::vector<SlotPoint>& curve = out[static_cast<size_t>(span.rank)];
    if (change.begins != 0) curve.push_back({span.begin_s, curve.back().bytes + change.begins});
    if (change.ends != 0) curve.push_back({span.end_s, curve.back().bytes - change.ends});
  }
  return out;
}

std::vector<double> most_in_cells(const std::vector<SlotPoint>& curve, double seconds, size_t cells) {
  std::vector<double> out(cells, 0);
  const double cell_s = seconds / static_cast<double>(cells);
  const auto cell_of = [&](double at) {
    return cell_s > 0 ? std::min(static_cast<size_t>(std::max(at, 0.0) / cell_s), cells - 1) : size_t{0};
  };
  for (size_t i = 0; i < curve.size(); ++i) {
    const double until = i + 1 < curve.size() ? curve[i + 1].seconds : seconds;
    for (size_t cell = cell_of(curve[i].seconds); cell <= cell_of(until); ++cell)
      out[cell] = std::max(out[cell], curve[i].bytes);
  }
  return out;
}

}  // namespace plait

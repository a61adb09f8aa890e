// Schedules that are found rather than written: the best of several lists by simulation.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/generators.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/timeline.h"

namespace plait {
namespace {

/// Keeps the candidate with the least makespan; the first of equal ones.
class Best {
 public:
  explicit Best(const ScheduleShape& shape, std::function<double(const Action&)> cost) {
    timing_.cost = std::move(cost);
    timing_.link = [link_s = shape.costs.link_s](int32_t, int32_t, const Action&, int32_t) {
      return LinkTime{link_s, 0};
    };
  }
  void add(std::optional<Schedule> candidate) {
    if (!candidate) return;
    const double time = simulate(*candidate, timing_).makespan_s;
    if (best_ && time >= makespan_ * (1 - 1e-9)) return;
    makespan_ = time;
    best_ = std::move(candidate);
  }
  Schedule take(std::string_view name) {
    if (best_) return std::move(*best_);
    throw Error(Code::invalid_argument, cat("schedule ", name, ": no order keeps to the limit of live micro-batches"),
                "raise ScheduleCosts::most_live");
  }

 private:
  TimelineOptions timing_;
  double makespan_ = 0;
  std::optional<Schedule> best_;
};

ListRules rules_of(const ScheduleShape& shape, const Seats& seats, bool split) {
  ListRules out;
  out.seats = seats;
  out.ranks = shape.ranks;
  out.micro_batches = shape.micro_batches;
  out.split = split;
  out.cost = costs_of(shape, seats);
  out.link_s = shape.costs.link_s;
  return out;
}

int32_t limit_of(const ScheduleShape& shape) { return shape.costs.most_live ? shape.costs.most_live : shape.ranks; }

Schedule chimera(const ScheduleShape& shape, int32_t pairs, bool split) {
  ListRules rules = rules_of(shape, mirrored_seats(shape.ranks, pairs), split);
  rules.unit = std::max(shape.ranks / (2 * pairs), 1);
  Best best(shape, rules.cost);
  // Fewer than `ranks` live micro-batches let the two directions block each other; whole backwards that take longer
  // than forwards need half as many again to keep pace beyond the first unit.
  const int32_t p = shape.ranks, most = shape.costs.most_live ? shape.costs.most_live : p + p / 2;
  for (const int32_t live : std::set{std::min(p, most), std::min(p + p / 4, most), most}) {
    rules.most_live = live;
    best.add(list_schedule(rules));
  }
  return best.take("chimera");
}

/// The limit in sets of a rank's stages. Without a given one, what the interleaved list needs.
int32_t live_sets(const ScheduleShape& shape, int32_t chunks) {
  if (shape.costs.most_live) return shape.costs.most_live * chunks;
  return shape.ranks * chunks + (chunks > 1 ? shape.ranks - 1 : 0);
}

void add_listed(const ScheduleShape& shape, const Seats& seats, int32_t most, Best& best) {
  for (const bool split : {false, true}) {
    ListRules rules = rules_of(shape, seats, split);
    rules.most_live = most;
    for (const int32_t unit : {1, shape.ranks})
      for (const double gap : {0.0, 0.5, 1.0}) {
        if (gap > 0 && !split) continue;  // it concerns weight gradients
        rules.unit = unit;
        rules.gap = gap;
        best.add(list_schedule(rules));
      }
  }
}

/// A written list, if no rank holds more sets than allowed.
void add_written(const Schedule& schedule, int32_t most, Best& best) {
  for (const LivePeaks& peaks : check_schedule(schedule).ranks)
    if (peaks.forward_to_weight > most) return;
  best.add(schedule);
}

}  // namespace

std::function<double(const Action&)> costs_of(const ScheduleShape& shape, const Seats& seats) {
  if (shape.costs.action) return shape.costs.action;
  const double chunks = std::max(1.0, static_cast<double>(seats.size()) / shape.ranks);
  return [chunks](const Action& action) {
    if (action.kind == Action::Kind::update) return 0.0;
    return (action.kind == Action::Kind::backward ? 2.0 : 1.0) / chunks;
  };
}

Seats mirrored_seats(int32_t ranks, int32_t pairs) {
  if (ranks % (2 * pairs))
    throw Error(
        Code::invalid_argument,
        cat("schedule chimera:", pairs, " has ", 2 * pairs, " pipelines, which do not divide ", ranks, " ranks"),
        cat("use a multiple of ", 2 * pairs, " pipeline ranks, or fewer pairs"));
  Seats out(static_cast<size_t>(ranks));
  for (int32_t stage = 0; stage < ranks; ++stage)
    for (const bool up : {false, true})
      for (int32_t pair = 0; pair < pairs; ++pair) {
        const int32_t first = pair * ranks / pairs;
        out[static_cast<size_t>(stage)].push_back((first + (up ? ranks - 1 - stage : stage)) % ranks);
      }
  return out;
}

// Li and Hoefler 2021: pipelines in both directions over the same ranks. Their order within a unit of ranks / 2
// micro-batches follows from list scheduling, also for backwards that take longer than forwards.
Schedule make_chimera(const ScheduleShape& shape, int32_t pairs) { return chimera(shape, pairs, false); }
Schedule make_chimera_split(const ScheduleShape& shape, int32_t pairs) { return chimera(shape, pairs, true); }

// Stages with several seats (as PipeDream's and DAPPLE's plans have them), one stage a rank.
Schedule make_seated(const ScheduleShape& shape, bool split) {
  ListRules rules = rules_of(shape, shape.seats, split);
  Best best(shape, rules.cost);
  const int32_t most = limit_of(shape);
  for (const int32_t live : std::set{std::min(2, most), std::min(4, most), std::min(8, most), most}) {
    rules.most_live = live;
    best.add(list_schedule(rules));
  }
  return best.take("with several seats a stage");
}

// The best of the written lists and of list scheduling, by simulation with the shape's costs.
Schedule make_auto(const ScheduleShape& shape, int32_t chunks) {
  const Seats seats = shape.seats.empty() ? looped_seats(shape.ranks, chunks) : shape.seats;
  const int32_t most = live_sets(shape, chunks);
  Best best(shape, costs_of(shape, seats));
  if (shape.seats.empty()) {
    add_written(make_interleaved(shape, chunks), most, best);
    add_written(chunks == 1 ? make_zb_h1(shape, 0) : make_zb_interleaved(shape, chunks), most, best);
    if (chunks == 1) add_written(make_zb_h2(shape, 0), most, best);
    add_written(make_breadth_first(shape, chunks), most, best);
  }
  add_listed(shape, seats, most, best);
  return best.take("auto");
}

Schedule make_auto_v(const ScheduleShape& shape, int32_t) {
  const Seats seats = vee_seats(shape.ranks, 0);
  const int32_t most = live_sets(shape, 2);
  Best best(shape, costs_of(shape, seats));
  add_written(make_zb_v(shape, 0), most, best);
  add_written(make_dualpipe_v(shape, 0), most, best);
  add_listed(shape, seats, most, best);
  return best.take("auto-v");
}

}  // namespace plait

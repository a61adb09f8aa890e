#pragma once
// What the tests of schedules share: costs, errors, and an independent check by brute force.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/schedules.h"
#include "core/schedule/timeline.h"

namespace plait::test {

using Kind = Action::Kind;

/// Costs by kind.
inline std::function<double(const Action&)> costs(double f, double b, double i = 1, double w = 1) {
  return [=](const Action& one) {
    const double of[] = {f, b, i, w, 0};
    return of[static_cast<size_t>(one.kind)];
  };
}

inline Schedule made(const std::string& name, int32_t ranks, int32_t micro_batches, int32_t steps = 1) {
  return make_schedule(name, {.ranks = ranks, .micro_batches = micro_batches, .steps = steps});
}

inline double makespan(const Schedule& schedule, const std::function<double(const Action&)>& cost) {
  TimelineOptions options;
  options.cost = cost;
  return simulate(schedule, options).makespan_s;
}

/// The message of the error that this throws; "" if it throws none.
inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
    return error.message();
  }
  return "";
}

/// Whether a synchronous schedule of a chain is valid, written from the definition: every action once and on its
/// seat, and the ranks run whatever can run, until all has. Quadratic.
inline bool is_valid(const Schedule& s) {
  std::multiset<std::tuple<int, int, int>> all;
  for (size_t rank = 0; rank < s.ranks.size(); ++rank)
    for (const Action& one : s.ranks[rank]) {
      if (one.stage < 0 || one.stage >= s.stages || one.micro_batch < 0 || one.micro_batch >= s.micro_batches)
        return false;
      const auto& seats = s.seats[static_cast<size_t>(one.stage)];
      if (seats[static_cast<size_t>(one.micro_batch) % seats.size()] != static_cast<int>(rank)) return false;
      all.insert({static_cast<int>(one.kind), one.stage, one.micro_batch});
    }
  for (int stage = 0; stage < s.stages; ++stage)
    for (int k = 0; k < s.micro_batches; ++k) {
      auto count = [&](Kind kind) { return all.count({static_cast<int>(kind), stage, k}); };
      const bool whole = count(Kind::backward) == 1 && !count(Kind::input_gradient) && !count(Kind::weight_gradient);
      const bool split =
          !count(Kind::backward) && count(Kind::input_gradient) == 1 && count(Kind::weight_gradient) == 1;
      if (count(Kind::forward) != 1 || (!whole && !split)) return false;
    }
  std::set<std::tuple<int, int, int>> done;
  auto has = [&](Kind kind, int stage, int k) { return done.count({static_cast<int>(kind), stage, k}) > 0; };
  auto back = [&](int stage, int k) { return has(Kind::backward, stage, k) || has(Kind::input_gradient, stage, k); };
  auto can = [&](const Action& one) {
    const int stage = one.stage, k = one.micro_batch;
    if (one.kind == Kind::forward) return stage == 0 || has(Kind::forward, stage - 1, k);
    if (one.kind == Kind::weight_gradient) return has(Kind::input_gradient, stage, k);
    return has(Kind::forward, stage, k) && (stage + 1 == s.stages || back(stage + 1, k));
  };
  std::vector<size_t> at(s.ranks.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < s.ranks.size(); ++rank)
      for (; at[rank] < s.ranks[rank].size() && can(s.ranks[rank][at[rank]]); ++at[rank], moved = true) {
        const Action& one = s.ranks[rank][at[rank]];
        done.insert({static_cast<int>(one.kind), one.stage, one.micro_batch});
      }
  }
  return done.size() == all.size();
}

}  // namespace plait::test

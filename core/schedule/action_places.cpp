#include "core/schedule/action_places.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

using Kind = Action::Kind;

Error wrong(std::string message, std::string hint = {}) {
  return Error(Code::invalid_argument, "schedule: " + std::move(message), std::move(hint));
}

void check_seats(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  if (schedule.stages < 1 || schedule.micro_batches < 1 || schedule.ranks.empty())
    throw wrong(cat(schedule.stages, " stages, ", schedule.micro_batches, " micro-batches and ", schedule.ranks.size(),
                  " ranks: at least one of each is needed"));
  if (schedule.seats.size() != static_cast<size_t>(schedule.stages))
    throw wrong(cat("seats of ", schedule.seats.size(), " stages, expected ", schedule.stages));
  for (size_t stage = 0; stage < schedule.seats.size(); ++stage) {
    std::set<int32_t> seen;
    for (const int32_t rank : schedule.seats[stage]) {
      if (rank < 0 || static_cast<size_t>(rank) >= schedule.ranks.size())
        throw wrong(
            cat("stage ", stage, " has a seat on rank ", rank, ", and there are ", schedule.ranks.size(), " ranks"));
      if (!seen.insert(rank).second) throw wrong(cat("stage ", stage, " has two seats on rank ", rank));
    }
    if (seen.empty()) throw wrong(cat("stage ", stage, " has no seat"));
  }
  std::set<std::pair<int32_t, int32_t>> known;
  for (const StageEdge& edge : edges) {
    const std::string name = cat("edge from stage ", edge.from, " to stage ", edge.to);
    for (const int32_t stage : {edge.from, edge.to})
      if (stage < 0 || stage >= schedule.stages) throw wrong(cat(name, ": there are ", schedule.stages, " stages"));
    if (edge.from == edge.to) throw wrong(cat(name, ": an edge connects two stages"));
    if (!known.insert({edge.from, edge.to}).second) throw wrong(cat(name, ": it is there twice"));
  }
}

/// Where the actions of one (stage, micro-batch) are in their rank's list; -1: nowhere.
using Places = std::array<int32_t, 4>;

class Checker {
 public:
  Checker(const Schedule& schedule, const std::vector<StageEdge>& edges)
      : schedule_(schedule), inward_(static_cast<size_t>(schedule.stages)), updates_(schedule.seats.size()) {
    for (const StageEdge& edge : edges) inward_[static_cast<size_t>(edge.to)].push_back(edge.from);
  }

  void check() {
    for (size_t stage = 0; stage < updates_.size(); ++stage) updates_[stage].assign(schedule_.seats[stage].size(), 0);
    int64_t actions = 0;
    for_each([&](size_t rank, size_t position, const Action& one) {
      check_range(rank, position, one);
      ++actions;
    });
    const int64_t sets = static_cast<int64_t>(schedule_.stages) * schedule_.micro_batches;
    // Two actions a set at least: the table below is no larger than the lists.
    if (actions < 2 * sets) throw first_missing();
    places_.assign(static_cast<size_t>(sets), {-1, -1, -1, -1});
    for_each([&](size_t rank, size_t position, const Action& one) { enter(rank, position, one); });
    check_complete();
    for_each([&](size_t rank, size_t position, const Action& one) { check_order(rank, position, one); });
  }

 private:
  template <class Step>
  void for_each(Step step) const {
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      for (size_t i = 0; i < schedule_.ranks[rank].size(); ++i) step(rank, i, schedule_.ranks[rank][i]);
  }
  Places& places(int32_t stage, int32_t micro_batch) {
    return places_[static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batches) +
                   static_cast<size_t>(micro_batch)];
  }
  static int32_t& of(Places& places, Kind kind) { return places[static_cast<size_t>(kind)]; }

  void check_range(size_t rank, size_t position, const Action& one) const {
    if (one.stage < 0 || one.stage >= schedule_.stages)
      throw action_error(schedule_, rank, position, cat("there is no stage ", one.stage, " of ", schedule_.stages));
    const auto& seats = schedule_.seats[static_cast<size_t>(one.stage)];
    if (one.kind == Kind::update) {
      if (std::find(seats.begin(), seats.end(), static_cast<int32_t>(rank)) == seats.end())
        throw action_error(schedule_, rank, position, "the rank has no seat of that stage");
      return;
    }
    if (one.micro_batch < 0 || one.micro_batch >= schedule_.micro_batches)
      throw action_error(schedule_, rank, position,
                         cat("there is no micro-batch ", one.micro_batch, " of ", schedule_.micro_batches));
    const int32_t seat = schedule_.rank_of(one.stage, one.micro_batch);
    if (seat != static_cast<int32_t>(rank))
      throw action_error(schedule_, rank, position, cat("it belongs to rank ", seat),
                         "the seats of a stage take micro-batches in turn");
  }

  void enter(size_t rank, size_t position, const Action& one) {
    if (one.kind == Kind::update) {
      const auto& seats = schedule_.seats[static_cast<size_t>(one.stage)];
      const auto seat = std::find(seats.begin(), seats.end(), static_cast<int32_t>(rank)) - seats.begin();
      int32_t& made = updates_[static_cast<size_t>(one.stage)][static_cast<size_t>(seat)];
      if (one.micro_batch != made)
        throw action_error(schedule_, rank, position,
                           cat("updates count from 0: it is number ", made, " of its stage"));
      ++made;
      return;
    }
    Places& its = places(one.stage, one.micro_batch);
    int32_t& place = of(its, one.kind);
    if (place >= 0) throw action_error(schedule_, rank, position, cat("it is action ", place, ", too"));
    const bool split = one.kind == Kind::input_gradient || one.kind == Kind::weight_gradient;
    if (split && of(its, Kind::backward) >= 0)
      throw action_error(schedule_, rank, position,
                         cat("action ", of(its, Kind::backward), " is the whole backward of it"),
                         "a micro-batch has either B, or I and W");
    if (one.kind == Kind::backward)
      for (const Kind other : {Kind::input_gradient, Kind::weight_gradient})
        if (of(its, other) >= 0)
          throw action_error(schedule_, rank, position,
                             cat("action ", of(its, other), " is a part of the backward already"),
                             "a micro-batch has either B, or I and W");
    place = static_cast<int32_t>(position);
  }

  Error missing(int32_t stage, int32_t micro_batch, std::string_view letters) const {
    return wrong(cat("rank ", schedule_.rank_of(stage, micro_batch), " lacks ", stage, letters, micro_batch),
               "each stage runs F, and B or I and W, of every micro-batch");
  }

  /// Found without a table of all sets, which may be many more than there are actions.
  Error first_missing() const {
    std::set<std::pair<int32_t, int32_t>> seen[2];
    for_each([&](size_t, size_t, const Action& one) {
      if (one.kind == Kind::forward) seen[0].insert({one.stage, one.micro_batch});
      if (one.kind == Kind::backward || one.kind == Kind::input_gradient)
        seen[1].insert({one.stage, one.micro_batch});
    });
    for (int32_t stage = 0; stage < schedule_.stages; ++stage)
      for (int32_t micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch)
        for (const int what : {0, 1})
          if (!seen[what].count({stage, micro_batch})) return missing(stage, micro_batch, what ? "B" : "F");
    return wrong("an action is missing");
  }

  void check_complete() {
    for (int32_t stage = 0; stage < schedule_.stages; ++stage) {
      for (int32_t k = 0; k < schedule_.micro_batches; ++k) {
        Places& its = places(stage, k);
        const int32_t input = of(its, Kind::input_gradient), weight = of(its, Kind::weight_gradient);
        if (of(its, Kind::forward) < 0) throw missing(stage, k, "F");
        if (weight >= 0 && input < 0) throw missing(stage, k, "I");
        if (input >= 0 && weight < 0) throw missing(stage, k, "W");
        if (input < 0 && of(its, Kind::backward) < 0) throw missing(stage, k, "B");
      }
      const auto& made = updates_[static_cast<size_t>(stage)];
      const auto fewer = std::min_element(made.begin(), made.end());
      if (*fewer != *std::max_element(made.begin(), made.end()))
        throw wrong(cat("rank ", schedule_.seats[static_cast<size_t>(stage)][static_cast<size_t>(fewer - made.begin())],
                      " lacks ", stage, "U", *fewer),
                  "all seats of a stage make the same updates");
    }
  }

  /// What an action needs of its own rank has to come earlier in the list.
  void check_order(size_t rank, size_t position, const Action& one) {
    auto needs = [&](const Action& other, int32_t place) {
      if (place > static_cast<int32_t>(position))
        throw action_error(schedule_, rank, position, cat("it needs ", other.text(), ", which is action ", place));
    };
    if (one.kind == Kind::update) return;
    Places& its = places(one.stage, one.micro_batch);
    auto needs_own = [&](Kind kind) { needs({kind, one.stage, one.micro_batch}, of(its, kind)); };
    if (one.kind == Kind::weight_gradient) return needs_own(Kind::input_gradient);
    if (one.kind != Kind::forward) return needs_own(Kind::forward);
    for (const int32_t from : inward_[static_cast<size_t>(one.stage)]) {
      if (schedule_.rank_of(from, one.micro_batch) != static_cast<int32_t>(rank)) continue;
      Places& theirs = places(from, one.micro_batch);
      needs({Kind::forward, from, one.micro_batch}, of(theirs, Kind::forward));
      // Their backward needs this stage's.
      const Kind there = of(theirs, Kind::backward) >= 0 ? Kind::backward : Kind::input_gradient;
      const Kind here = of(its, Kind::backward) >= 0 ? Kind::backward : Kind::input_gradient;
      const auto late = static_cast<size_t>(of(theirs, there));
      if (of(its, here) > of(theirs, there))
        throw action_error(
            schedule_, rank, late,
            cat("it needs ", Action{here, one.stage, one.micro_batch}.text(), ", which is action ", of(its, here)));
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<int32_t>> inward_;   ///< stages that feed a stage
  std::vector<Places> places_;                 ///< by stage and micro-batch
  std::vector<std::vector<int32_t>> updates_;  ///< [stage][seat]
};

}  // namespace

Error action_error(const Schedule& schedule, size_t rank, size_t position, std::string_view why, std::string hint) {
  return wrong(cat("rank ", rank, ", action ", position, " (", schedule.ranks[rank][position].text(), "): ", why),
             std::move(hint));
}

void check_actions(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  check_seats(schedule, edges);
  Checker(schedule, edges).check();
}

}  // namespace plait

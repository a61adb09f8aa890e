#include "core/schedule/schedule_check.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/action_places.h"
#include "core/schedule/mail_run.h"
#include "core/schedule/weight_versions.h"

namespace plait {
namespace {

using Kind = Action::Kind;

/// Peaks of the sets of one rank, or of one seat.
class LiveCount {
 public:
  void begin(Kind kind) {
    if (kind == Kind::forward) ++to_input_, ++to_weight_;
    if (kind == Kind::input_gradient) ++between_;
    peaks_.forward_to_input = std::max(peaks_.forward_to_input, to_input_);
    peaks_.forward_to_weight = std::max(peaks_.forward_to_weight, to_weight_);
    peaks_.input_to_weight = std::max(peaks_.input_to_weight, between_);
  }
  void end(Kind kind) {
    if (kind == Kind::backward || kind == Kind::input_gradient) --to_input_;
    if (kind == Kind::backward || kind == Kind::weight_gradient) --to_weight_;
    if (kind == Kind::weight_gradient) --between_;
  }
  const LivePeaks& peaks() const { return peaks_; }

 private:
  int32_t to_input_ = 0, to_weight_ = 0, between_ = 0;
  LivePeaks peaks_;
};

void count_live(const Schedule& schedule, ScheduleFacts& facts) {
  std::vector<std::vector<LiveCount>> seats;
  for (const auto& of : schedule.seats) seats.emplace_back(of.size());
  for (const auto& list : schedule.ranks) {
    LiveCount whole;
    for (const Action& one : list) {
      auto& of = seats[static_cast<size_t>(one.stage)];
      LiveCount& seat = of[static_cast<size_t>(one.micro_batch) % of.size()];
      if (one.kind == Kind::update) continue;
      for (LiveCount* count : {&whole, &seat}) count->begin(one.kind);
      for (LiveCount* count : {&whole, &seat}) count->end(one.kind);
    }
    facts.ranks.push_back(whole.peaks());
  }
  for (const auto& of : seats) {
    auto& out = facts.seats.emplace_back();
    for (const LiveCount& one : of) out.push_back(one.peaks());
  }
}

/// Losses are added by F; gradients by B and I, or by B and W.
bool is_ascending(const Schedule& schedule) {
  const std::vector<std::vector<Kind>> adders = {
      {Kind::forward}, {Kind::backward, Kind::input_gradient}, {Kind::backward, Kind::weight_gradient}};
  for (const auto& kinds : adders)
    for (const auto& list : schedule.ranks) {
      std::vector<int32_t> last(static_cast<size_t>(schedule.stages), -1);
      for (const Action& one : list) {
        if (std::find(kinds.begin(), kinds.end(), one.kind) == kinds.end()) continue;
        int32_t& before = last[static_cast<size_t>(one.stage)];
        if (one.micro_batch < before) return false;
        before = one.micro_batch;
      }
    }
  return true;
}

/// The least number of places with which the plan finishes. More never hurt: ranks wait for named messages only.
int32_t least_places(MailRun& run, const MailPlan& plan) {
  if (plan.pairs.empty()) return 0;
  int32_t enough = 1, few = 0;
  while (!run.finishes(enough)) {
    few = enough;
    enough *= 2;
  }
  while (enough - few > 1) {
    const int32_t middle = (enough + few) / 2;
    (run.finishes(middle) ? enough : few) = middle;
  }
  return enough;
}

}  // namespace

std::vector<StageEdge> chain_edges(int32_t stages) {
  std::vector<StageEdge> out;
  for (int32_t stage = 0; stage + 1 < stages; ++stage) out.push_back({stage, stage + 1});
  return out;
}

ScheduleFacts check_schedule(const Schedule& schedule, const CheckOptions& options) {
  const auto edges = options.edges.value_or(chain_edges(schedule.stages));
  check_actions(schedule, edges);
  ScheduleFacts facts;
  facts.asynchronous = schedule.is_asynchronous();
  facts.split = schedule.is_split();
  facts.whole = schedule.has(Kind::backward);
  find_versions(schedule, options.most_versions, facts);
  const MailPlan plan = plan_mail(schedule, edges);
  MailRun run(plan);
  if (!run.finishes(MailRun::no_limit))
    throw Error(Code::invalid_argument, cat("schedule: ranks wait for each other: ", run.cycle(schedule)),
                "put what the others wait for further to the front of its list");
  facts.places = least_places(run, plan);
  if (options.most_places && facts.places > options.most_places) {
    run.finishes(options.most_places);
    throw Error(
        Code::invalid_argument,
        cat("schedule: ", options.most_places, " places for messages of a pair of ranks are too few, it needs ",
            facts.places, ": ", run.cycle(schedule)),
        "give each pair more places, or send earlier what the receiver wants first");
  }
  facts.rendezvous = run.finishes(0);
  if (run.finishes(std::max(facts.places, 1))) facts.set_aside = run.set_aside();
  count_live(schedule, facts);
  facts.ascending = is_ascending(schedule);
  return facts;
}

}  // namespace plait

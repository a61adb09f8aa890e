#include "core/plan/search/plan_search.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/passes/shard/shard.h"
#include "core/plan/search/candidates.h"

namespace plait {
namespace {

std::string_view name_of(Recompute how) {
  static constexpr std::string_view names[] = {"off", "selective", "rounded", "full"};
  return names[static_cast<size_t>(how)];
}

std::string mesh_of(const Plan& plan) { return plan.ranks() == 1 ? "one rank" : plan.mesh(); }

/// The plan's choice of where experts are.
std::string experts_of(const Plan& plan) {
  return plan.has_seed("expert_data") ? "experts over data ranks"
         : plan.has_seed("expert")    ? "whole experts on tensor ranks"
                                      : "experts like other weights";
}

/// A respect in which plans differ, and what a plan has of it, in words.
struct Respect {
  std::string (*of)(const Plan& plan);
};
const Respect respects[] = {
    {[](const Plan& plan) { return cat("mesh ", mesh_of(plan)); }},
    {[](const Plan& plan) { return cat("schedule ", plan.schedule); }},
    {[](const Plan& plan) {
      return plan.seats.empty() ? std::string("one seat a stage") : cat("seats ", plan.seats_text());
    }},
    {[](const Plan& plan) { return cat("micro-batch ", plan.micro_batch); }},
    {[](const Plan& plan) { return cat("zero ", plan.zero); }},
    {[](const Plan& plan) { return cat("recompute ", name_of(plan.recompute)); }},
    {[](const Plan& plan) {
      return std::string(plan.has_seed("sequence") ? "tokens sharded over tensor ranks"
                                                   : "tokens on all tensor ranks");
    }},
    {experts_of},
};

/// The respect in which plans differ, if it is one.
const Respect* only_difference(const Plan& a, const Plan& b) {
  const Respect* out = nullptr;
  for (const Respect& one : respects) {
    if (one.of(a) == one.of(b)) continue;
    if (out) return nullptr;
    out = &one;
  }
  return out;
}

std::string percent(double share) { return cat(std::round(share * 1000) / 10, " %"); }

/// Throws Error(invalid_argument) for shardings that no mesh has.
void check_seeds(const std::vector<std::string>& seeds, const DecoderShape& shape) {
  recipe_of(seeds);
  for (const std::string& seed : seeds)
    if ((seed == "expert" || seed == "expert_data") && shape.experts == 0)
      throw Error(Code::invalid_argument, cat("seeds are ", quote(seed), ", and the decoder has no experts"),
                  "leave them out");
}

/// What was given, for messages: " with pipeline=2 and the schedule zb-v".
std::string given_of(const PlanLimits& limits) {
  std::vector<std::string> out;
  for (const auto& [name, size] :
       {std::pair("pipeline", limits.pipeline), std::pair("data", limits.data), std::pair("tensor", limits.tensor)})
    if (size) out.push_back(cat(name, "=", *size));
  if (limits.schedule) out.push_back(cat("the schedule ", *limits.schedule));
  if (limits.micro_batches) out.push_back(cat(*limits.micro_batches, " micro-batches"));
  if (!limits.seats.empty()) out.push_back("these seats");
  return out.empty() ? "" : cat(" with ", join(out, ", "));
}

/// What takes longer, the most of it first.
std::string reason(const StepPrice& best, const StepPrice& other) {
  struct Part {
    double seconds;
    const char* text;
  };
  const auto idle = [](const StepPrice& price) {
    return price.bubble * price.timeline.makespan_s - price.messages_s;
  };
  const auto busy = [](const StepPrice& price) {
    return (1 - price.bubble) * price.timeline.makespan_s - price.collectives_s;
  };
  Part parts[] = {{busy(other) - busy(best), "computing"},
                  {idle(other) - idle(best), "an idle pipeline"},
                  {other.messages_s - best.messages_s, "messages between stages"},
                  {other.collectives_s - best.collectives_s, "collectives"},
                  {other.reduce_s - best.reduce_s, "reducing gradients"},
                  {other.update_s - best.update_s, "updating weights"},
                  {other.control_s - best.control_s, "what ranks tell each other of a step"}};
  const Part most = *std::max_element(std::begin(parts), std::end(parts),
                                      [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  return cat(percent(other.step_s / best.step_s - 1), " slower, most of it ", most.text);
}

constexpr int most_threads = 16;  // each compiles sections of its own, in some hundred megabytes

class Search {
 public:
  Search(PlanPricer& pricer, const PlanLimits& limits) : pricer_(pricer), limits_(limits) {
    memory_ = limits.memory_bytes > 0 ? limits.memory_bytes : 0.95 * pricer.task().machine.device.memory_bytes;
  }

  SearchResult run() {
    collect();
    simulate_best();
    if (priced_.empty()) nothing_fits();
    std::sort(priced_.begin(), priced_.end(), [](const StepPrice& a, const StepPrice& b) {
      return a.step_s != b.step_s ? a.step_s < b.step_s : a.most_bytes() < b.most_bytes();
    });
    out_.best = priced_.front();
    find_neighbours();
    out_.others.assign(priced_.begin() + 1, priced_.end());
    out_.simulated = static_cast<int64_t>(priced_.size() + large_.size());
    return std::move(out_);
  }

 private:
  /// A candidate's bounds, also with seats, or why it has none.
  struct Tried {
    std::vector<Candidate> bounds;
    std::exception_ptr refused;
  };

  void collect() {
    const std::vector<Plan> plans = candidate_plans(pricer_.task(), limits_);
    std::vector<Tried> tried(plans.size());
    // Nearly all of a search's time: sections are compiled.
    ThreadPool pool(std::clamp(usable_processors(), 1, most_threads));
    pool.for_each(static_cast<int64_t>(plans.size()), [&](int64_t i, int) {
      Tried& one = tried[static_cast<size_t>(i)];
      const Plan& plan = plans[static_cast<size_t>(i)];
      try {
        one.bounds.push_back(bound_of(pricer_, plan));
        for (const Plan& seated : plans_with_seats(pricer_, limits_, plan))
          one.bounds.push_back(bound_of(pricer_, seated));
      } catch (const Error& error) {  // shardings that the mesh does not allow, or the engine does not make
        if (error.code() != Code::unsupported && error.code() != Code::invalid_argument) throw;
        one.refused = std::current_exception();
      }
    });
    std::exception_ptr refused;
    for (Tried& one : tried) {
      for (Candidate& bound : one.bounds) take_bound(std::move(bound));
      if (one.refused) refused = one.refused;
    }
    if (out_.tried == 0 && refused) std::rethrow_exception(refused);
    if (out_.tried == 0)
      throw Error(Code::invalid_argument,
                  cat("no mesh of ", limits_.ranks, " ranks", given_of(limits_), " fits a batch of ",
                      pricer_.task().batch, " samples, ", pricer_.task().decoder.shape.layers, " layers and ",
                      pricer_.task().decoder.shape.kv_heads, " kv heads"),
                  "give another number of ranks, or a batch that more numbers divide");
    std::sort(fitting_.begin(), fitting_.end(),
              [](const Candidate& a, const Candidate& b) { return a.bound_s < b.bound_s; });
  }

  void take_bound(Candidate one) {
    ++out_.tried;
    least_ = std::min(least_, one.least_bytes);
    if (one.least_bytes <= memory_) fitting_.push_back(std::move(one));
  }

  void simulate_best() {
    double best = std::numeric_limits<double>::infinity();
    size_t simulated = 0;
    for (const Candidate& one : fitting_) {
      if (one.bound_s >= best || simulated == limits_.most_simulated) break;
      if (const std::optional<StepPrice> price = priced(one.plan); price && price->most_bytes() <= memory_) {
        ++simulated;
        best = std::min(best, price->step_s);
      }
    }
    out_.fitting = static_cast<int64_t>(fitting_.size());
  }

  /// Simulates once. Nothing for a plan that cannot be, with the reason in `refused_`.
  std::optional<StepPrice> priced(const Plan& plan) {
    StepPrice price;
    try {
      price = pricer_.price(plan);
    } catch (const Error& error) {
      if (error.code() != Code::invalid_argument && error.code() != Code::unsupported) throw;
      refused_ = std::current_exception();
      return std::nullopt;
    }
    price.timeline.spans.clear();  // many plans are kept
    price.slots.clear();
    least_of_priced_ = std::min(least_of_priced_, price.most_bytes());
    (price.most_bytes() <= memory_ ? priced_ : large_).push_back(price);
    return price;
  }

  /// Of each respect the best other choice, whether or not the search came to it.
  void find_neighbours() {
    const Plan best = out_.best.plan;
    for (const Respect& respect : respects) {
      std::vector<const Candidate*> changed;
      for (const Candidate& one : fitting_)
        if (only_difference(best, one.plan) == &respect) changed.push_back(&one);
      for (size_t i = 0; i < std::min<size_t>(changed.size(), 3); ++i) add_neighbour(respect, changed[i]->plan);
    }
  }

  void add_neighbour(const Respect& respect, const Plan& plan) {
    const auto same = [&](const StepPrice& one) {
      return std::all_of(std::begin(respects), std::end(respects),
                         [&](const Respect& each) { return each.of(one.plan) == each.of(plan); });
    };
    std::optional<StepPrice> price;
    for (const auto* list : {&priced_, &large_})
      if (const auto found = std::find_if(list->begin(), list->end(), same); found != list->end()) price = *found;
    if (!price) price = priced(plan);
    if (!price) return;
    Neighbour out{respect.of(plan), price->plan, {}, price->step_s, price->most_bytes()};
    if (out.bytes > memory_) {
      out.lost = cat("a rank takes ", human_bytes(static_cast<int64_t>(out.bytes)), " of ",
                     human_bytes(static_cast<int64_t>(memory_)));
      out.step_s = 0;
    } else {
      out.lost = reason(out_.best, *price);
    }
    out_.neighbours.push_back(std::move(out));
  }

  [[noreturn]] void nothing_fits() const {
    if (large_.empty() && refused_) std::rethrow_exception(refused_);
    const double least = std::isfinite(least_of_priced_) ? least_of_priced_ : least_;
    throw Error(Code::out_of_memory,
                cat("no plan of ", out_.tried, " fits: the least takes ", human_bytes(static_cast<int64_t>(least)),
                    " on a rank, which has ", human_bytes(static_cast<int64_t>(memory_))),
                "more ranks, or a smaller micro-batch");
  }

  PlanPricer& pricer_;
  const PlanLimits& limits_;
  double memory_ = 0;
  std::vector<Candidate> fitting_;
  std::vector<StepPrice> priced_, large_;  ///< that fit, and that do not
  std::exception_ptr refused_;             ///< why the last plan that cannot be cannot
  double least_ = std::numeric_limits<double>::infinity(), least_of_priced_ = std::numeric_limits<double>::infinity();
  SearchResult out_;
};

}  // namespace

SearchResult search_plan(PlanPricer& pricer, const PlanLimits& limits) {
  check_seeds(limits.seeds, pricer.task().decoder.shape);
  pricer.task().machine.check_ranks(limits.ranks);
  return Search(pricer, limits).run();
}

}  // namespace plait

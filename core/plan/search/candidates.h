#pragma once
// The plans that the planner tries.
#include <optional>
#include <string>
#include <vector>

#include "core/plan/simulate/plan_pricer.h"

namespace plait {

/// Fixed parts of the plan; what is not set is searched.
struct PlanLimits {
  int64_t ranks = 1;
  double memory_bytes = 0;  ///< of a rank; 0: 0.95 of the device's, the rest is its runtime's
  std::optional<int64_t> pipeline = {}, data = {}, tensor = {};
  std::optional<int64_t> micro_batch = {};    ///< tokens of a data rank
  std::optional<int64_t> micro_batches = {};  ///< of a step of a pipeline, if `micro_batch` is not set
  std::optional<int> zero = {};
  std::optional<Recompute> recompute = {};
  std::optional<std::string> schedule = {};
  std::vector<int64_t> layers = {};     ///< of each stage; empty: balanced
  std::vector<int64_t> seats = {};      ///< as Plan::seats; empty: searched, too
  std::vector<std::string> seeds = {};  ///< as Plan::seeds; empty: searched, too
  size_t most_simulated = 200;
};

/// A plan of which something is known.
struct Candidate {
  Plan plan;
  double bound_s = 0;      ///< about the least time of a step
  double least_bytes = 0;  ///< of the rank that takes most
};

/// All plans within the limits that the task's sizes and the machine allow: tensor ranks within the machine's first level; data ranks
/// that divide the batch; micro-batches of up to 64 samples, with a pipeline of up to 8; at most as many stages as there are layers;
/// with several tensor ranks also with sharded tokens; experts by their features, by tensor ranks, or by data ranks.
std::vector<Plan> candidate_plans(const PlanTask& task, const PlanLimits& limits);

/// The plan's cuts into fewer stages than ranks, some of which have several seats, where the slowest stage is faster than the plan's own
/// by the costs of layers. None where the limits or the schedule leave no choice, or where stages are alike.
std::vector<Plan> plans_with_seats(PlanPricer& pricer, const PlanLimits& limits, const Plan& plan);

/// What can be known of a plan without a simulation.
Candidate bound_of(PlanPricer& pricer, const Plan& plan);

}  // namespace plait

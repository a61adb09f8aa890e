#pragma once
// The planner: looks for the fastest plan of a task that fits.
//
// Every mesh, micro-batch, ZeRO stage, recomputation, schedule and cut into stages of several seats is tried with a bound that needs no
// simulation: the busiest rank's work, and how long the pipeline takes to fill and drain. Plans whose weights, optimizer and one micro-
// batch do not fit are out. The others are simulated by ascending bound, until a bound is worse than what was found.
#include <string>
#include <vector>

#include "core/plan/search/candidates.h"

namespace plait {

/// A plan that differs from the best one in one respect, and how it compares.
struct Neighbour {
  std::string changed;  ///< "schedule 1f1b"
  Plan plan;
  std::string lost;   ///< why: "12 % slower: ...", "needs 93.1 GB a rank"
  double step_s = 0;  ///< 0: it does not fit
  double bytes = 0;
};

/// Prices are without spans and slots over time, which `PlanPricer::price` gives again.
struct SearchResult {
  StepPrice best;
  std::vector<Neighbour> neighbours;
  std::vector<StepPrice> others;  ///< simulated plans that fit, by time
  int64_t tried = 0, fitting = 0, simulated = 0;
};

/// Throws Error(out_of_memory) if nothing fits, with the least bytes that a plan takes; Error(invalid_argument) if no mesh of so many
/// ranks exists for the task, or the limits contradict each other.
SearchResult search_plan(PlanPricer& pricer, const PlanLimits& limits);

}  // namespace plait

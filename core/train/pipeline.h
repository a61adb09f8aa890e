#pragma once
// The pipeline of a trainer: its stages and the schedule of each step.
#include <map>
#include <optional>
#include <vector>

#include "core/mesh/mesh.h"
#include "core/passes/base/stages.h"
#include "core/passes/base/training.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/schedules.h"

namespace plait {

/// Whether the schedule updates weights while micro-batches are in flight; false for lists, which may not, and for a name
/// that does not exist.
bool is_asynchronous(const PipelineOptions& options);

class Pipeline {
 public:
  /// Without pipeline ranks: one stage, unless the schedule is asked for by a name other than "1f1b". Throws
  /// Error(invalid_argument) for a schedule, cut or seats that do not fit each other or the mesh.
  Pipeline(const PipelineOptions& options, const Mesh& mesh);

  const StageOptions& stages() const { return stages_; }
  bool in_stages() const { return stages_.count() > 1; }
  bool is_asynchronous() const { return terms_.asynchronous; }
  /// As Schedule::is_consistent.
  bool is_consistent() const;
  /// How many micro-batches a step is cut into, if its tokens allow.
  int64_t micro_batches() const { return micro_batches_; }

  /// Which stages feed which, once the graph is cut; a chain before.
  void set_edges(std::vector<StageEdge> edges);

  /// Lists that are checked, and the messages of a pair of ranks that may be in transit.
  struct Plan {
    Schedule schedule;
    int32_t places = 1;
    ScheduleFacts facts = {};  ///< of `training`
  };
  /// Of a step of so many micro-batches. Throws Error(invalid_argument) for a number that the schedule cannot have.
  const Plan& training(int64_t micro_batches);
  /// A window of `steps` steps of so many micro-batches each, of an asynchronous schedule.
  const Plan& window(int64_t micro_batches, int64_t steps);
  /// The forward actions of a step only.
  const Plan& forward(int64_t micro_batches);

 private:
  const int32_t ranks_;
  const PipelineOptions options_;
  StageOptions stages_;
  ScheduleTerms terms_;
  std::optional<Schedule> given_;  ///< lists of the user's
  int64_t micro_batches_ = 1;
  std::vector<StageEdge> edges_;
  std::map<int64_t, Plan> training_, forward_;               ///< by micro-batches
  std::map<std::pair<int64_t, int64_t>, Plan> windows_;  ///< by micro-batches and steps
};

}  // namespace plait

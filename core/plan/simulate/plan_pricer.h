#pragma once
// A plan of a training run, and what a step of it costs.
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "core/plan/simulate/slot_curve.h"
#include "core/plan/stages/stage_costs.h"
#include "core/schedule/schedule_facts.h"
#include "core/schedule/schedules.h"
#include "core/schedule/timeline.h"

namespace plait {

/// What is to be trained, on what.
struct PlanTask {
  PlannedDecoder decoder;
  Machine machine;
  int64_t batch = 0;              ///< samples of a step, of the shape's sequence each
  TrainingOptions training = {};  ///< row_tokens, zero, recompute and pipeline are the plan's
  DType work = DType::none;       ///< as PriceTerms
  bool cut_messages = false;      ///< as StageTerms
  bool cut_rows = false;          ///< as PriceTerms::cut_hidden
  /// Recompute::full runs whole layers again, as torch.utils.checkpoint does. The engine leaves out products whose results only the
  /// residual stream reads.
  bool whole_layers_again = false;
  /// Next to trained weights of f32 there is a copy of them in `work`, as in mixed precision (Micikevicius et al. 2018).
  bool copies_in_work = false;
};

/// How it is cut.
struct Plan {
  int64_t pipeline = 1, data = 1, tensor = 1;
  std::string schedule = "1f1b";
  std::vector<int64_t> layers = {};  ///< of each stage; empty: balanced by time
  int64_t micro_batch = 0;           ///< tokens of a data rank
  int zero = 0;
  Recompute recompute = Recompute::off;
  /// Pipeline ranks of each stage, which take micro-batches in turn; empty: the schedule's own.
  std::vector<int64_t> seats = {};
  /// Shardings as CompileOptions::seeds: with "sequence" tokens are sharded over tensor ranks between products, "expert" gives tensor
  /// ranks whole experts, "expert_data" data ranks; empty: the task's.
  std::vector<std::string> seeds = {};

  int64_t ranks() const { return pipeline * data * tensor; }
  std::string mesh() const;        ///< "pipeline=2,data=4,tensor=8"; "" on one rank
  std::string seats_text() const;  ///< "3:1"; "" for the schedule's own
  bool has_seed(std::string_view seed) const;
  ScheduleTerms terms() const;  ///< of its schedule; throws what schedule_terms throws
};

/// Micro-batches of a step, which the micro-batch divides.
int64_t micro_batches_of(const PlanTask& task, const Plan& plan);

/// Bytes of one rank.
struct PlannedBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double arena = 0;     ///< within a section
  double slots = 0;     ///< of micro-batches in flight
  double messages = 0;  ///< in transit
  double total() const { return weights + gradients + optimizer + arena + slots + messages; }
};

struct StepPrice {
  Plan plan;  ///< with its stages' layers
  int64_t micro_batches = 0;
  double step_s = 0;  ///< of an asynchronous schedule: from a step to the next, once the pipeline is full
  double tokens_per_second = 0;
  double mfu =
      0;  ///< operations of forward and backward pass, without recomputation, over the ranks' peak; of adapters without
          ///< gradients of the weights under them
  double bubble = 0;  ///< idle share of the pipeline's time, 0 to 1
  /// Seconds of a step in which the busiest rank waits: for collectives of its sections, for messages between stages, for the
  /// reduction of gradients; what the optimizer takes; and what ranks tell each other of the step itself: that it begins, losses, norm
  /// and times.
  double collectives_s = 0, messages_s = 0, reduce_s = 0, update_s = 0, control_s = 0;
  std::vector<PlannedBytes> memory;  ///< by pipeline coordinate
  Timeline timeline;
  std::vector<std::vector<SlotPoint>> slots;  ///< as it runs, by pipeline coordinate

  double most_bytes() const;
};

/// Prices plans of one task. Probes are compiled once for all plans that share their terms, several at once if several threads ask.
/// Thread-safe.
class PlanPricer {
 public:
  explicit PlanPricer(PlanTask task) : task_(std::move(task)) {}
  const PlanTask& task() const { return task_; }

  /// Simulates a step. Throws Error(invalid_argument) for a plan that cannot be: sizes that do not divide, layers that are not the
  /// decoder's, a schedule that does not exist, ranks that the machine does not have.
  StepPrice price(const Plan& plan);
  /// The costs of its stages.
  const StageTable& table(const Plan& plan);

 private:
  using TableKey = std::tuple<ProbeTerms, int64_t, int64_t>;  ///< with data ranks and micro-batch

  /// Made by the first that asks for it; others wait.
  template <class T>
  struct Once {
    std::mutex mutex;  ///< of the rest
    std::unique_ptr<T> made;
    std::exception_ptr refused;  ///< what the engine does not compile
  };
  template <class Key, class T>
  Once<T>& place_of(std::map<Key, std::unique_ptr<Once<T>>>& all, const Key& key) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Once<T>>& found = all[key];
    if (!found) found = std::make_unique<Once<T>>();
    return *found;
  }
  const StageProbe& probe(const ProbeTerms& terms);
  StageTable price_table(const Plan& plan, Recompute recompute, bool scores_kept);

  const PlanTask task_;
  std::mutex mutex_;  ///< of the maps
  std::map<ProbeTerms, std::unique_ptr<Once<StageProbe>>> probes_;
  std::map<TableKey, std::unique_ptr<Once<StageTable>>> tables_;
};

/// Forward and backward pass of a stage; `split`: with input and weight gradients of their own.
double work_seconds(const StageCosts& costs, bool split);

/// The layers of each stage, for the least largest time of a rank's forward and backward passes.
std::vector<int64_t> balanced_layers(const StageTable& table, int64_t layers, const Seats& seats, bool split);

}  // namespace plait

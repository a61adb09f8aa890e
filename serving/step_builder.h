#pragma once
// Composes the next step: which samples, how many tokens of each, and which sample is preempted. Changes samples and
// sequences; runs nothing.
#include <span>
#include <vector>

#include "serving/request_state.h"
#include "serving/step_goal.h"

namespace plait {

using Job = std::shared_ptr<Request::State>;

/// One sample's part of a step.
struct StepEntry {
  Job job;
  Sample* sample;
  std::vector<int32_t> tokens;
  int64_t rows;       ///< computes logits of the last `rows` tokens
  bool ends_prefill;  ///< the sample has logits to sample from afterwards
  int64_t begin;      ///< position of the first of `tokens`
};

/// For the engine's thread. The engine must outlive it.
class StepBuilder {
 public:
  explicit StepBuilder(Engine& engine) : engine_(engine) {}

  /// Opens a waiting sample's sequence if the first chunk fits, or if no other sample of `running` has one.
  bool start(const Job& job, Sample& sample, std::span<const Job> running);
  /// The next step of `running` (in admission order): first samples that lack one token (decode), so that long
  /// prompts do not delay them, then prompts, oldest first, within the step's token budget and the goal of its time; at most
  /// `most`, and none that is in flight. A job that cannot continue although it has the cache to itself ends with Error(invalid_argument).
  std::vector<StepEntry> build(std::span<const Job> running, int64_t most, const StepGoal& goal);
  /// Samples preempted so far.
  int64_t preempted() const { return preempted_; }

 private:
  bool add(const Job& job, Sample& sample, int64_t budget);
  bool make_space(Sample& sample, int64_t& tokens);
  bool preempt_youngest(const Sample& except);
  bool is_alone(const Sample& sample) const;

  Engine& engine_;
  std::span<const Job> running_;
  std::vector<StepEntry> entries_;
  int64_t preempted_ = 0;
};

}  // namespace plait

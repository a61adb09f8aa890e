#pragma once
// What the next step is made of: which samples, how many tokens of each, who loses its cache for it. Reads and changes
// samples and sequences; runs nothing.
#include <span>
#include <vector>

#include "serving/request_state.h"

namespace plait {

using Job = std::shared_ptr<Request::State>;

/// One sample's part of a step.
struct StepEntry {
  Job job;
  Sample* sample;
  std::vector<int32_t> tokens;
  int64_t rows;       ///< last tokens whose logits are wanted
  bool ends_prefill;  ///< after it the sample has logits to choose from
};

/// For the engine's thread. The engine outlives it.
class StepBuilder {
 public:
  explicit StepBuilder(Engine& engine) : engine_(engine) {}

  /// Gives a waiting sample its sequence if the first chunk fits; if no other sample of `running` has one, in any case.
  bool start(const Job& job, Sample& sample, std::span<const Job> running);
  /// The next step of `running`, which is in order of admission: first samples that lack one token, so that running answers
  /// never wait for long prompts, then prompts, oldest first, within the step's tokens. A job that cannot go on though it
  /// has the cache to itself ends with Error(out_of_memory).
  std::vector<StepEntry> build(std::span<const Job> running);
  /// Samples that lost their sequence so far, to make room for older ones.
  int64_t preempted() const { return preempted_; }

 private:
  bool add(const Job& job, Sample& sample, int64_t budget);
  bool make_room(Sample& sample, int64_t& tokens);
  bool preempt_youngest(const Sample& except);
  bool is_alone(const Sample& sample) const;

  Engine& engine_;
  std::span<const Job> running_;
  std::vector<StepEntry> entries_;
  int64_t preempted_ = 0;
};

}  // namespace plait

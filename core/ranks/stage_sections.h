#pragma once
// The sections of a rank's pipeline stages, and the slots in which values of a micro-batch wait between them.
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/exec/executor.h"
#include "core/ranks/action_runner.h"
#include "core/ranks/stage_section.h"

namespace plait {

/// One thread drives it.
class StageSections final : public StageWork {
 public:
  using MakeExecutor = std::function<std::unique_ptr<Executor>(std::shared_ptr<const Program>)>;
  /// The inputs of a program for a micro-batch, in host memory, valid until the next call.
  using Inputs = std::function<std::vector<TensorView>(const Program& program, int32_t micro_batch)>;
  /// Gets a result of the whole program by its number there, in host memory.
  using OnResult = std::function<void(int32_t micro_batch, int32_t result, const TensorView& value)>;

  /// `sections` must outlive this; `memory` and `device` are those of the executors.
  StageSections(const std::vector<StageSection>& sections, const MakeExecutor& make,
                std::shared_ptr<MemoryBudget> memory, Device& device);

  /// For the runs that follow. Slots that a run left behind, because it threw, are free again.
  void begin(Inputs inputs, OnResult on_result);
  /// Throws as Executor::bind.
  void check(const Inputs& inputs);
  /// As Executor::use, of an action's section.
  void use(const Action& action, const std::map<std::string, Tensor, std::less<>>& arrays) {
    at(action).executor->use(arrays);
  }
  /// As Executor::set_watch, of all sections.
  void set_watch(std::string* origin);

  bool has(const Action& action) const override { return find(action) != nullptr; }
  std::span<const StageMessage> takes(const Action& action) const override { return at(action).section->takes; }
  std::span<const StageMessage> gives(const Action& action) const override { return at(action).section->gives; }
  void prepare(const Action& action) override;
  TensorView taken(const Action& action, int32_t value) override { return at(action).executor->slot(value); }
  void run(const Action& action) override;
  TensorView given(const Action& action, int32_t value) override {
    return at(action).executor->output_on_device(value);
  }
  Tensor keep(const TensorView& value) override;
  void hand_over(const TensorView& from, const TensorView& to) override;
  void finish(const Action& action) override;

  /// Bytes of all slots so far.
  int64_t slot_bytes() const { return slot_bytes_; }

 private:
  struct Part {
    const StageSection* section = nullptr;
    std::unique_ptr<Executor> executor;
  };
  using Sets = std::array<std::shared_ptr<Blob>, slot_pools>;

  Part* find(const Action& action) const;
  Part& at(const Action& action) const;
  std::shared_ptr<Blob> take(int32_t stage, size_t pool, int64_t bytes);

  std::map<std::pair<int32_t, Action::Kind>, std::unique_ptr<Part>> parts_;  ///< by stage and kind
  const std::shared_ptr<MemoryBudget> memory_;
  Device& device_;
  Inputs inputs_;
  OnResult on_result_;
  std::map<std::pair<int32_t, int32_t>, Sets> sets_;  ///< in use, by stage and micro-batch
  std::map<std::pair<int32_t, size_t>, std::vector<std::shared_ptr<Blob>>> free_;  ///< by stage and pool
  int64_t slot_bytes_ = 0;
  std::vector<std::shared_ptr<Blob>> kept_;  ///< of `keep`; free if nothing else holds it
};

}  // namespace plait

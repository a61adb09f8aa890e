#pragma once
// A window of steps on one rank of an asynchronous pipeline: weights are updated while micro-batches are in flight, and each
// micro-batch's backward pass reads the weights of its forward pass, which are kept (PipeDream, Narayanan et al. 2019;
// PipeDream-2BW, Narayanan et al. 2021).
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/exec/store.h"
#include "core/passes/train/compile_training.h"
#include "core/ranks/stage_sections.h"

namespace plait {

/// Arrays that take the place of the Store's, by key.
using ArraysByKey = std::map<std::string, Tensor, std::less<>>;

struct WindowOptions {
  int64_t micro_batches = 1;  ///< of a step
  std::vector<double> rates;  ///< of learning, by step
  double clip = 0;            ///< longest norm of a step's gradients; 0: any
  int64_t first_step = 1;     ///< number of its first update
};

/// By step of the window.
struct WindowResult {
  std::vector<double> losses, norms;  ///< norms: NaN if stages' gradients are not of one set of weights
  int64_t updates = 0;                ///< steps that were applied: less than all if a norm was not finite
};

/// Single-threaded. Wraps the sections of the rank's one stage.
class AsyncWindow final : public StageWork {
 public:
  struct Optimizer {
    /// The sum of the squares of this rank's gradients, which it reduces.
    std::function<double(const ArraysByKey& arrays)> squares;
    std::function<void(double scale, double rate, int64_t step, const ArraysByKey& arrays)> update;
  };
  /// `empty[k]`: micro-batch k has no data, on no rank. `pipeline` and `control` as ActionRunner. All must outlive this.
  AsyncWindow(const Schedule& schedule, const TrainingModel& model, const WindowOptions& options, std::vector<bool> empty,
              StageSections& sections, Store& store, Communicator& pipeline, Communicator& control, Optimizer optimizer);

  bool has(const Action& action) const override {
    return !empty_[static_cast<size_t>(action.micro_batch)] && sections_.has(action);
  }
  std::span<const StageMessage> takes(const Action& action) const override { return sections_.takes(action); }
  std::span<const StageMessage> gives(const Action& action) const override { return sections_.gives(action); }
  void prepare(const Action& action) override;
  TensorView taken(const Action& action, int32_t value) override { return sections_.taken(action, value); }
  void run(const Action& action) override { sections_.run(action); }
  TensorView given(const Action& action, int32_t value) override { return sections_.given(action, value); }
  Tensor keep(const TensorView& value) override { return sections_.keep(value); }
  void hand_over(const TensorView& from, const TensorView& to) override { sections_.hand_over(from, to); }
  void finish(const Action& action) override;
  void update(const Action& action) override;

  const std::vector<double>& norms() const { return norms_; }
  int64_t updates() const { return stopped_ ? stopped_at_ : updates_; }

 private:
  int64_t step_of(const Action& action) const { return action.micro_batch / options_.micro_batches; }
  void plan(const std::vector<Action>& list);
  void end_of_backwards(int64_t step);
  double norm_of(int64_t step);
  ArraysByKey gradients_of(int64_t step);
  Tensor& spare_gradient(const std::string& key);
  Tensor gradient(const std::string& key, int64_t step);
  Tensor total_of(const TrainedParameter& parameter, int64_t step);
  bool is_first(const std::vector<int32_t>& holders) const { return holders.front() == rank_; }
  void give_to_first_holders(int64_t step);
  void take_from_holders(int64_t step);
  void give_totals(int64_t step);
  void take_totals(int64_t step);
  void keep_version();
  Tensor device_array(const Tensor& like) const;
  size_t index_of(size_t own) const;

  const TrainingModel& model_;
  const WindowOptions& options_;
  const std::vector<bool> empty_;
  StageSections& sections_;
  Store& store_;
  Communicator &pipeline_, &control_;
  const Optimizer optimizer_;
  const bool consistent_;
  const int32_t rank_;
  std::vector<TrainedParameter> own_;
  std::vector<int64_t> version_of_;  ///< by micro-batch
  std::vector<int64_t> last_of_;     ///< by step: the last micro-batch that has data; -1: none has
  std::map<int64_t, int64_t> uses_;  ///< by version: micro-batches that still read it
  std::map<int64_t, ArraysByKey> kept_;  ///< older versions that are still read
  std::vector<ArraysByKey> free_;        ///< memory of versions that are not
  ArraysByKey spare_gradients_;          ///< sums of every second step, so that one can wait for its norm
  std::vector<double> squares_, norms_;  ///< by step
  int64_t updates_ = 0, stopped_at_ = 0;
  bool stopped_ = false;  ///< a norm was not finite: nothing is applied any more
};

}  // namespace plait

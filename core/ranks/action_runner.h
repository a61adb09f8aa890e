#pragma once
// Runs a rank's list of a Schedule: takes what an action needs from other stages, runs it, gives what it makes.
#include <map>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/schedule/schedule.h"
#include "core/schedule/stage_message.h"
#include "core/schedule/timeline.h"

namespace plait {

/// What a rank does for its actions. Called by one thread.
class StageWork {
 public:
  virtual ~StageWork() = default;
  /// Whether there is anything to do: a stage without trained weights has no backward actions.
  virtual bool has(const Action& action) const = 0;
  virtual std::span<const StageMessage> takes(const Action& action) const = 0;
  virtual std::span<const StageMessage> gives(const Action& action) const = 0;

  /// Before messages of the action are taken.
  virtual void prepare(const Action& action) = 0;
  /// Where a value of a message goes, on the device. Valid until `run`.
  virtual TensorView taken(const Action& action, int32_t value) = 0;
  virtual void run(const Action& action) = 0;
  /// A value of a message, on the device. Valid until the next `run`.
  virtual TensorView given(const Action& action, int32_t value) = 0;
  /// A copy of a value for another stage of this rank, on the device.
  virtual Tensor keep(const TensorView& value) = 0;
  /// Copies a kept value to where that stage takes it.
  virtual void hand_over(const TensorView& from, const TensorView& to) = 0;
  /// After what it makes was given.
  virtual void finish(const Action& action) = 0;
  /// Of asynchronous schedules.
  virtual void update(const Action&) {}
};

/// One thread drives it. Memory in transit is bounded unless the caller bounds it: a rank gives only while fewer than `places` of
/// its messages to a rank are not taken. While a rank waits for a message it takes those that the sender gives before it, too, and sets
/// them aside. With the places that check_schedule returns no list stands still.
class ActionRunner {
 public:
  /// `pipeline`: the ranks along the mesh's axis pipeline that differ in nothing else, by coordinate, for arrays on the device;
  /// `control`: the same ranks, for host memory. Both must outlive this. Null: this rank has all stages.
  explicit ActionRunner(Communicator* pipeline, Communicator* control) : pipeline_(pipeline), control_(control) {}

  /// Runs the rank's actions. All ranks of the pipeline call it at once with the same schedule. `places` 0: no rank waits until
  /// its messages are taken, since the caller bounds how many are in transit; `control` is then unused.
  /// Errors are those of the work, and of the communicator.
  void run(const Schedule& schedule, int32_t places, StageWork& work);

  int32_t rank() const { return pipeline_ ? pipeline_->rank() : 0; }
  /// When the actions of the last `run` ran, without their mail, in `monotonic_s` seconds.
  const std::vector<TimelineSpan>& spans() const { return spans_; }

 private:
  void take(const Schedule& schedule, const Action& action, StageWork& work);
  void give(const Schedule& schedule, const Action& action, StageWork& work);
  void give_credit(int32_t to, int32_t taken);
  void await_credit(int32_t from);

  Communicator* const pipeline_;
  Communicator* const control_;
  int32_t places_ = 1;
  std::vector<TimelineSpan> spans_;
  std::map<int32_t, int32_t> not_taken_;  ///< messages by rank that they are given to; < 0: credit for later ones
  std::map<int32_t, int32_t> credited_;   ///< messages by rank that they come from
  std::vector<int32_t> given_before_;     ///< by message taken
  size_t next_take_ = 0;
  std::map<int64_t, Tensor> kept_;  ///< what this rank gives itself and has not taken yet, by tag
};

}  // namespace plait

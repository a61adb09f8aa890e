#pragma once
// Runs a rank's list of a Schedule: takes what an action needs from other stages, runs it, gives what it makes.
#include <map>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/schedule/schedule.h"
#include "core/schedule/stage_message.h"

namespace plait {

/// What a rank does for its actions. Called by one thread.
class StageWork {
 public:
  virtual ~StageWork() = default;
  /// Whether there is anything to do: a stage without trained weights has no backward actions.
  virtual bool has(const Action& action) const = 0;
  virtual std::span<const StageMessage> takes(const Action& action) const = 0;
  virtual std::span<const StageMessage> gives(const Action& action) const = 0;

  /// Before messages of the action are taken, and again if it is called twice.
  virtual void prepare(const Action& action) = 0;
  /// Where a value of a message goes, on the device. Valid until `run`.
  virtual TensorView taken(const Action& action, int32_t value) = 0;
  virtual void run(const Action& action) = 0;
  /// A value of a message, on the device. Valid until the next `run`.
  virtual TensorView given(const Action& action, int32_t value) = 0;
  /// Copies it to where another stage of this rank takes it.
  virtual void hand_over(const TensorView& from, const TensorView& to) = 0;
  /// After what it makes was given.
  virtual void finish(const Action& action) = 0;
  /// Of asynchronous schedules.
  virtual void update(const Action&) {}
};

/// One thread drives it. Memory in transit is bounded: a rank gives only while less than `places` of its messages to a rank
/// are not wanted yet. With ScheduleFacts::unwanted() no list stands still.
class ActionRunner {
 public:
  /// `pipeline`: the ranks along the mesh's axis pipeline that differ in nothing else, by coordinate, for arrays on the device;
  /// `control`: the same ranks, for host memory. Both must outlive this. Null: this rank has all stages.
  explicit ActionRunner(Communicator* pipeline, Communicator* control) : pipeline_(pipeline), control_(control) {}

  /// Runs the rank's actions. All ranks of the pipeline call it at once with the same schedule.
  /// Errors are those of the work, and of the communicator.
  void run(const Schedule& schedule, int32_t places, StageWork& work);

  int32_t rank() const { return pipeline_ ? pipeline_->rank() : 0; }

 private:
  void take(const Schedule& schedule, const Action& action, StageWork& work);
  void give(const Schedule& schedule, const Action& action, StageWork& work);
  void await_credit(int32_t from);

  Communicator* const pipeline_;
  Communicator* const control_;
  int32_t places_ = 1;
  std::map<int32_t, int32_t> not_taken_;  ///< messages by rank that they were given to
};

}  // namespace plait

#pragma once
// A trainer that several threads of a host use: it goes through its data by itself, and does between the steps what it is
// asked for.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/train/trainer.h"

namespace plait {

/// What became of a step, and of the run by then.
struct RunEvent {
  StepReport report;
  int64_t steps = 0;  ///< of the whole run; 0: not known
  double epochs = 0;  ///< of the data that were gone through
  double seconds_left = StepReport::unknown;
  double best_loss = StepReport::unknown;          ///< of all evaluations
  Trainer::Ending ending = Trainer::Ending::none;  ///< not none: the run is over, and this is its last event
};

/// Thread-safe. Its end cancels the trainer and waits for the step under way.
class TrainingRun {
 public:
  /// Begins at once where the trainer has data. `keep` is what the trainer works with: it lives as long.
  TrainingRun(std::unique_ptr<Trainer> trainer, std::shared_ptr<void> keep);
  ~TrainingRun();

  /// The next event; nullopt when none came in time. Behind the last one it is given again. At most `most_events` wait: the
  /// oldest are dropped. Throws what ended the run, and Error(invalid_argument) where there are no data to go through.
  std::optional<RunEvent> next(std::chrono::milliseconds timeout);
  /// The step under way ends soon, and the run with it.
  void cancel() { trainer_->cancel(); }
  /// Calls `work` when no step is under way; what it throws is thrown here.
  void with(FunctionRef<void(Trainer& trainer)> work);
  /// `report`, of a step that the trainer has just done, as an event.
  RunEvent event_of(const StepReport& report);

  static constexpr size_t most_events = 4096;

 private:
  void loop();
  void tell(RunEvent event);

  std::shared_ptr<void> keep_;
  std::unique_ptr<Trainer> trainer_;
  std::mutex trainer_mutex_;
  std::condition_variable between_steps_;
  std::atomic<int> waiting_{0};  ///< who asks for the trainer between two steps
  double step_seconds_ = 0;      ///< smoothed
  std::chrono::steady_clock::time_point last_;

  std::mutex events_mutex_;
  std::condition_variable told_;
  std::deque<RunEvent> events_;
  std::optional<RunEvent> last_event_;
  std::exception_ptr failure_;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace plait

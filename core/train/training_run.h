#pragma once
// Runs a trainer on a thread of its own; other threads call it between steps.
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

/// The report of a step, and the state of the run.
struct RunEvent {
  StepReport report;
  int64_t steps = 0;  ///< of the whole run; 0: unknown
  double epochs = 0;  ///< passes over the data
  double seconds_left = StepReport::unknown;
  double best_loss = StepReport::unknown;          ///< of all evaluations
  Trainer::Ending ending = Trainer::Ending::none;  ///< if not none: the run has ended, and this is its last event
};

/// Thread-safe. The destructor cancels the trainer and waits for the current step.
class TrainingRun {
 public:
  /// Starts at once if the trainer has data. `keep` owns what the trainer uses.
  TrainingRun(std::unique_ptr<Trainer> trainer, std::shared_ptr<void> keep);
  ~TrainingRun();

  /// The next event; nullopt on timeout. After the last event it returns that again. At most `most_events` are
  /// queued: the oldest are dropped. Throws the error that ended the run, and Error(invalid_argument) if there are no
  /// data.
  std::optional<RunEvent> next(std::chrono::milliseconds timeout);
  /// Ends the current step soon, and the run with it.
  void cancel() { trainer_->cancel(); }
  /// Calls `work` between steps, on this thread; throws its errors.
  void with(FunctionRef<void(Trainer& trainer)> work);
  /// Converts the report of the newest step into an event.
  RunEvent event_of(const StepReport& report);

  static constexpr size_t most_events = 4096;

 private:
  void loop();
  void tell(RunEvent event);

  std::shared_ptr<void> keep_;
  std::unique_ptr<Trainer> trainer_;
  std::mutex trainer_mutex_;
  std::condition_variable between_steps_;
  std::atomic<int> waiting_{0};  ///< threads that wait for the trainer
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

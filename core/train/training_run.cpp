#include "core/train/training_run.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/threads.h"

namespace plait {

using Clock = std::chrono::steady_clock;

TrainingRun::TrainingRun(std::unique_ptr<Trainer> trainer, std::shared_ptr<void> keep)
    : keep_(std::move(keep)), trainer_(std::move(trainer)), last_(Clock::now()) {
  if (trainer_->has_data()) thread_ = start_thread("the run's thread", [this] { loop(); });
}

TrainingRun::~TrainingRun() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void TrainingRun::loop() {
  try {
    while (true) {
      std::unique_lock lock(trainer_mutex_);
      between_steps_.wait(lock, [&] { return waiting_ == 0; });
      const std::optional<StepReport> report = trainer_->step();
      // The last step's event reports the end of the run, unless it ends between steps.
      if (report) tell(event_of(*report));
      if (trainer_->ending() == Trainer::Ending::none) continue;
      RunEvent last = event_of(report ? *report : StepReport{.step = trainer_->steps_done()});
      last.ending = trainer_->ending();
      return tell(std::move(last));
    }
  } catch (...) {
    std::lock_guard lock(events_mutex_);
    failure_ = std::current_exception();
    told_.notify_all();
  }
}

RunEvent TrainingRun::event_of(const StepReport& report) {
  constexpr double share = 0.1;  // weight of the newest step in the mean
  const double seconds = std::chrono::duration<double>(Clock::now() - last_).count();
  step_seconds_ = step_seconds_ > 0 ? (1 - share) * step_seconds_ + share * seconds : seconds;
  last_ = Clock::now();
  RunEvent out{.report = report, .steps = trainer_->steps(), .epochs = trainer_->epochs()};
  if (out.steps)
    out.seconds_left = static_cast<double>(std::max<int64_t>(out.steps - report.step, 0)) * step_seconds_;
  if (std::isfinite(trainer_->best_loss())) out.best_loss = trainer_->best_loss();
  return out;
}

void TrainingRun::tell(RunEvent event) {
  std::lock_guard lock(events_mutex_);
  if (event.ending != Trainer::Ending::none) last_event_ = std::move(event);
  else events_.push_back(std::move(event));
  if (events_.size() > most_events) events_.pop_front();
  told_.notify_all();
}

std::optional<RunEvent> TrainingRun::next(std::chrono::milliseconds timeout) {
  if (!trainer_->has_data())
    throw Error(Code::invalid_argument, "the trainer has no data to go through", "give it steps, or the option data");
  std::unique_lock lock(events_mutex_);
  auto there = [&] { return !events_.empty() || last_event_ || failure_; };
  if (timeout.count() < 0) told_.wait(lock, there);
  else if (!told_.wait_for(lock, timeout, there)) return std::nullopt;
  if (!events_.empty()) {
    RunEvent out = std::move(events_.front());
    events_.pop_front();
    return out;
  }
  if (failure_) std::rethrow_exception(failure_);
  return last_event_;
}

void TrainingRun::with(FunctionRef<void(Trainer& trainer)> work) {
  ++waiting_;
  std::unique_lock lock(trainer_mutex_);
  --waiting_;
  between_steps_.notify_all();
  work(*trainer_);
}

}  // namespace plait

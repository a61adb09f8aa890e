// Steps of an asynchronous pipeline, in windows.
#include <algorithm>
#include <chrono>
#include <limits>

#include "core/train/trainer.h"

namespace plait {

/// Windows end where something is due, and at multiples of `flush_every`: so a run that is resumed has the same windows.
int64_t Trainer::window_steps() const {
  const int64_t done = engine_.steps(), most = options_.flush_every ? options_.flush_every : 16;
  int64_t out = std::min(most - done % most, steps() - done);
  for (int64_t every : {options_.evaluate_every, options_.save_every})
    if (every) out = std::min(out, every - done % every);
  return out;
}

/// Steps whose micro-batches are in flight together. Leaves their reports in `window_`.
void Trainer::take_window() {
  const auto begin = std::chrono::steady_clock::now();
  const std::string place = order_->state();
  const int64_t first = engine_.steps();
  std::vector<std::vector<MicroBatch>> steps;
  std::vector<GivenStep> given;
  std::vector<double> rates;
  for (int64_t i = 0, count = window_steps(); i < count; ++i) {
    std::vector<TrainingSample> samples;
    for (int64_t number : order_->next(options_.batch)) samples.push_back((*data_)[number]);
    given.push_back(
        as_batches(pack_step(samples, options_.training.row_tokens, engine_.data_ranks(), engine_.micro_batches())));
    steps.push_back(given.back().batches);
    rates.push_back(options_.rate.at(first + i));
  }
  const WindowResult result = engine_.run_window(steps, rates, options_.clip);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double bubble = draw_timeline();
  int64_t tokens = 0;
  for (const GivenStep& step : given) tokens += step.tokens;
  for (int64_t i = 0; i < result.updates; ++i) {
    const auto at = static_cast<size_t>(i);
    StepReport& report = window_.emplace_back();
    report.step = first + i + 1;
    report.loss = given[at].has_targets ? result.losses[at] : StepReport::unknown;
    report.learning_rate = rates[at];
    report.gradient_norm = result.norms[at];
    report.bubble = bubble;
    report.tokens = given[at].tokens;
    report.tokens_per_second = static_cast<double>(tokens) / seconds;
    report.memory_bytes = static_cast<double>(engine_.store_bytes() + engine_.run_bytes());
    follow(report);
  }
  if (result.updates == static_cast<int64_t>(steps.size())) return;
  // The order continues after the steps that were applied.
  order_->resume(place);
  for (int64_t i = 0; i < result.updates; ++i) order_->next(options_.batch);
  checked(std::numeric_limits<double>::quiet_NaN(), "norm of the gradients");
}

}  // namespace plait

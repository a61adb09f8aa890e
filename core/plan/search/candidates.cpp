#include "core/plan/search/candidates.h"

#include <algorithm>
#include <cmath>

#include "core/schedule/schedules.h"

namespace plait {
namespace {

/// Names that are tried, of several pipeline ranks. Others win only where these do as well, or take more memory.
constexpr std::string_view tried_schedules[] = {"1f1b", "interleaved:2", "interleaved:4", "zb-h1", "zb-v"};
constexpr int tried_zero[] = {0, 1, 3};
constexpr Recompute tried_recompute[] = {Recompute::off, Recompute::selective, Recompute::full};

std::vector<int64_t> divisors(int64_t of) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= of; ++i)
    if (of % i == 0) out.push_back(i);
  return out;
}

template <class T, class Range>
std::vector<T> one_or(const std::optional<T>& given, const Range& all) {
  if (given) return {*given};
  return std::vector<T>(std::begin(all), std::end(all));
}

std::vector<std::string> schedules_of(const PlanTask& task, const PlanLimits& limits, int64_t pipeline) {
  if (limits.schedule) return {*limits.schedule};
  if (pipeline == 1) return {"1f1b"};
  std::vector<std::string> out;
  for (const std::string_view name : tried_schedules) {
    const auto stages = static_cast<int64_t>(schedule_terms(name, static_cast<int32_t>(pipeline)).seats.size());
    if (stages <= task.decoder.shape.layers) out.emplace_back(name);
  }
  return out;
}

std::vector<int64_t> micro_batches_of(const PlanTask& task, const PlanLimits& limits, int64_t data,
                                      int64_t pipeline) {
  if (limits.micro_batch) return {*limits.micro_batch};
  std::vector<int64_t> out;
  const int64_t samples = task.batch / data;
  // A pipeline shorter than its micro-batches is idle half of the time and more.
  const int64_t most = pipeline > 1 ? std::min<int64_t>(samples / pipeline, 8) : std::min<int64_t>(samples, 64);
  for (int64_t one = 1; one <= std::max<int64_t>(most, 1); one *= 2)
    if (samples % one == 0) out.push_back(one * task.decoder.shape.sequence);
  return out;
}

/// Leaves out what cannot win: ZeRO of one rank; weights that are gathered in every micro-batch of a pipeline; zero bubble with
/// recomputation, whose waiting weight gradients keep as much as is saved.
bool makes_sense(const Plan& plan, const PlanLimits& limits) {
  if (!limits.zero && plan.zero > 0 && plan.data == 1) return false;
  if (!limits.zero && plan.zero == 3 && plan.pipeline > 1) return false;
  return limits.schedule || limits.recompute || !plan.schedule.starts_with("zb") || plan.recompute == Recompute::off;
}

double backward_s(const StageCosts& costs, bool split) {
  return split ? costs.of(Action::Kind::input_gradient).seconds + costs.of(Action::Kind::weight_gradient).seconds
               : costs.of(Action::Kind::backward).seconds;
}
double work_s(const StageCosts& costs, bool split) {
  return costs.of(Action::Kind::forward).seconds + backward_s(costs, split);
}

/// The least largest time of a stage. Where layers are alike, the largest time determines how many of them each stage can have;
/// otherwise it is at least the average, and any layer's.
double largest_stage_s(const StageTable& table, int64_t layers, int64_t stages, bool split) {
  const double first = work_s(table.first, split), last = work_s(table.last, split),
               middle = work_s(table.middle, split);
  double all = first + last, largest = 0;
  for (int64_t i = 0; i < layers; ++i) {
    all += work_s(table.layer(i), split);
    largest = std::max(largest, work_s(table.layer(i), split));
  }
  if (stages == 1) return all;
  if (table.layers.size() > 1) return std::max(all / static_cast<double>(stages), largest);
  const double layer = largest;
  const auto holds = [&](double limit) {
    const auto of = [&](double end) { return limit < end ? -1e18 : std::floor((limit - end) / layer + 1e-9); };
    return of(first) + of(last) + static_cast<double>(stages - 2) * of(middle) >= static_cast<double>(layers);
  };
  double low = 0, high = all + middle;
  for (int i = 0; i < 50; ++i) (holds((low + high) / 2) ? high : low) = (low + high) / 2;
  return high;
}

}  // namespace

std::vector<Plan> candidate_plans(const PlanTask& task, const PlanLimits& limits) {
  const DecoderShape& shape = task.decoder.shape;
  const int64_t within = task.machine.levels.empty() ? 1 : task.machine.levels.front().ranks;
  std::vector<Plan> out;
  for (const int64_t tensor : one_or(limits.tensor, divisors(limits.ranks))) {
    if (limits.ranks % tensor || shape.kv_heads % tensor || shape.feed_forward % tensor) continue;
    if (!limits.tensor && within && tensor > within) continue;
    for (const int64_t pipeline : one_or(limits.pipeline, divisors(limits.ranks / tensor))) {
      const int64_t data = limits.ranks / tensor / pipeline;
      if (data * tensor * pipeline != limits.ranks || (limits.data && data != *limits.data)) continue;
      if (task.batch % data || (!limits.pipeline && pipeline > shape.layers)) continue;
      for (const std::string& schedule : schedules_of(task, limits, pipeline))
        for (const int64_t micro_batch : micro_batches_of(task, limits, data, pipeline))
          for (const int zero : one_or(limits.zero, tried_zero))
            for (const Recompute recompute : one_or(limits.recompute, tried_recompute)) {
              Plan plan{pipeline, data, tensor, schedule, limits.layers, micro_batch, zero, recompute};
              if (makes_sense(plan, limits)) out.push_back(std::move(plan));
            }
    }
  }
  return out;
}

Candidate bound_of(PlanPricer& pricer, const Plan& plan) {
  const PlanTask& task = pricer.task();
  const ScheduleTerms terms = schedule_terms(plan.schedule, static_cast<int32_t>(plan.pipeline));
  const bool split = terms.split && !terms.whole;
  const StageTable& table = pricer.table(plan);
  const auto stages = static_cast<int64_t>(terms.seats.size());
  const double micro_batches =
      static_cast<double>(task.batch / plan.data * task.decoder.shape.sequence / plan.micro_batch);
  const auto ranks = static_cast<double>(plan.pipeline), layers = static_cast<double>(task.decoder.shape.layers);
  const StageCosts all = table.stage(0, task.decoder.shape.layers, true, true);
  Candidate out{plan};
  // A rank's work is at least the average, and that of its largest stage.
  const double rank_s =
      std::max(work_s(all, split) / ranks, largest_stage_s(table, task.decoder.shape.layers, stages, split));
  out.bound_s = micro_batches * rank_s + (all.finish_s + all.reduce_s) / ranks;
  if (plan.pipeline == 1) out.bound_s -= std::min(all.reduce_s, backward_s(all, false));
  // Filling and draining: a stage's forward and backward pass on each other rank; zero bubble fills them with weight gradients.
  if (!split && plan.schedule != "auto") {
    const double ends_s = work_s(table.first, split) + work_s(table.last, split);
    const double layer_s = (work_s(all, split) - ends_s) / layers;
    out.bound_s += (ranks - 1) * layer_s * std::floor(layers / static_cast<double>(stages));
  }
  double slots = 0;
  for (size_t pool = 1; pool < 3; ++pool) slots += all.slots[pool];  // of one micro-batch in flight, at least
  out.least_bytes = (all.weights + all.gradients + all.optimizer + slots) / ranks;
  return out;
}

}  // namespace plait

#include "core/plan/search/candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/plan/search/seat_cuts.h"
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

bool takes_seats(std::string_view name) {
  const auto rows = schedule_rows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const ScheduleRow& row) { return row.takes_seats && row.name == name; });
}

std::vector<std::string> schedules_of(const PlanTask& task, const PlanLimits& limits, int64_t pipeline) {
  if (limits.schedule) return {*limits.schedule};
  if (pipeline == 1) return {"1f1b"};
  std::vector<std::string> out;
  for (const std::string_view name : tried_schedules) {
    if (!limits.seats.empty() && !takes_seats(name)) continue;
    const auto stages = static_cast<int64_t>(schedule_terms(name, static_cast<int32_t>(pipeline)).seats.size());
    // The embedding and the head may have stages of their own, where so many are asked for.
    if (stages <= task.decoder.shape.layers + (limits.pipeline ? 2 : 0)) out.emplace_back(name);
  }
  return out;
}

std::vector<int64_t> micro_batch_sizes(const PlanTask& task, const PlanLimits& limits, int64_t data,
                                       int64_t pipeline) {
  if (limits.micro_batch) return {*limits.micro_batch};
  std::vector<int64_t> out;
  const int64_t samples = task.batch / data;
  if (limits.micro_batches && pipeline > 1) {
    if (samples % *limits.micro_batches == 0)
      out.push_back(samples / *limits.micro_batches * task.decoder.shape.sequence);
    return out;
  }
  // A pipeline shorter than its micro-batches is idle half of the time and more.
  const int64_t most = pipeline > 1 ? std::min<int64_t>(samples / pipeline, 8) : std::min<int64_t>(samples, 64);
  for (int64_t one = 1; one <= std::max<int64_t>(most, 1); ++one)
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

/// Shardings that the mesh and the sizes allow, the task's first.
std::vector<std::vector<std::string>> seed_choices(const PlanTask& task, const PlanLimits& limits, const Plan& plan) {
  if (!limits.seeds.empty()) {
    const bool shares = std::find(limits.seeds.begin(), limits.seeds.end(), "expert_data") != limits.seeds.end();
    if (shares && plan.data == 1) return {};
    return {limits.seeds};
  }
  const DecoderShape& shape = task.decoder.shape;
  std::vector<std::vector<std::string>> out{{}};
  if (shape.experts && plan.tensor > 1 && shape.experts % plan.tensor == 0) out.push_back({"expert"});
  if (shape.experts && std::gcd(shape.experts, plan.data) > 1) out.push_back({"expert_data"});
  if (plan.tensor == 1 || shape.sequence % plan.tensor) return out;
  for (size_t i = 0, count = out.size(); i < count; ++i) {
    out.push_back(out[i]);
    out.back().emplace_back("sequence");
  }
  return out;
}

double backward_s(const StageCosts& costs, bool split) {
  return split ? costs.of(Action::Kind::input_gradient).seconds + costs.of(Action::Kind::weight_gradient).seconds
               : costs.of(Action::Kind::backward).seconds;
}
/// The least largest time of a stage. Where layers are alike, the largest time determines how many of them each stage can have;
/// otherwise it is at least the average, and any layer's.
double largest_stage_s(const StageTable& table, int64_t layers, int64_t stages, bool split) {
  const double first = work_seconds(table.first, split), last = work_seconds(table.last, split),
               middle = work_seconds(table.middle, split);
  double all = first + last, largest = 0;
  for (int64_t i = 0; i < layers; ++i) {
    all += work_seconds(table.layer(i), split);
    largest = std::max(largest, work_seconds(table.layer(i), split));
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

/// Of given stages.
double slowest_given_s(const StageTable& table, const Plan& plan, bool split) {
  double out = 0;
  int64_t begin = 0;
  for (size_t i = 0; i < plan.layers.size(); begin += plan.layers[i++]) {
    const StageCosts stage = table.stage(begin, plan.layers[i], i == 0, i + 1 == plan.layers.size());
    out = std::max(out, work_seconds(stage, split) / static_cast<double>(plan.seats.empty() ? 1 : plan.seats[i]));
  }
  return out;
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
        for (const int64_t micro_batch : micro_batch_sizes(task, limits, data, pipeline))
          for (const int zero : one_or(limits.zero, tried_zero))
            for (const Recompute recompute : one_or(limits.recompute, tried_recompute)) {
              Plan plan{pipeline, data, tensor, schedule, limits.layers, micro_batch, zero, recompute, limits.seats};
              if (!makes_sense(plan, limits)) continue;
              for (const std::vector<std::string>& seeds : seed_choices(task, limits, plan)) {
                plan.seeds = seeds;
                out.push_back(plan);
              }
            }
    }
  }
  return out;
}

std::vector<Plan> plans_with_seats(PlanPricer& pricer, const PlanLimits& limits, const Plan& plan) {
  const PlanTask& task = pricer.task();
  const int64_t layers = task.decoder.shape.layers;
  // More ranks, or more layers a rank, are cut evenly enough.
  if (plan.pipeline < 3 || plan.pipeline > 16 || layers > 4 * plan.pipeline || plan.schedule != "1f1b" ||
      !limits.layers.empty() || !limits.seats.empty())
    return {};
  const StageTable& table = pricer.table(plan);
  // Units: the embedding, each layer, the head.
  std::vector<double> work{0};
  work.push_back(work_seconds(table.first, false));
  for (int64_t i = 0; i < layers; ++i) work.push_back(work.back() + work_seconds(table.layer(i), false));
  work.push_back(work.back() + work_seconds(table.last, false));
  constexpr double gain = 0.97;  // less is lost again by summing gradients over seats
  const double enough_s = gain * largest_stage_s(table, layers, plan.pipeline, false);
  if (work.back() / static_cast<double>(plan.pipeline) > enough_s) return {};
  const auto micro_batches = static_cast<double>(micro_batches_of(task, plan));
  SeatCosts costs;
  costs.stage = [&](size_t begin, size_t end, int64_t, int64_t seats) {
    // Micro-batches that seats do not divide leave some of them idle.
    return (work[end] - work[begin]) * std::ceil(micro_batches / static_cast<double>(seats)) / micro_batches;
  };
  std::vector<Plan> out;
  for (const SeatCut& cut :
       seat_cuts(work.size() - 1, plan.pipeline, static_cast<size_t>(plan.pipeline) - 1, costs)) {
    if (cut.seats.size() < 2 || cut.slowest_s > enough_s) continue;
    Plan& one = out.emplace_back(plan);
    one.seats = cut.seats;
    one.layers = cut.units;
    one.layers.front() -= 1;
    one.layers.back() -= 1;
  }
  return out;
}

Candidate bound_of(PlanPricer& pricer, const Plan& plan) {
  const PlanTask& task = pricer.task();
  const ScheduleTerms terms = plan.terms();
  const bool split = terms.split && !terms.whole;
  const StageTable& table = pricer.table(plan);
  const auto stages = static_cast<int64_t>(terms.seats.size());
  const auto micro_batches = static_cast<double>(micro_batches_of(task, plan));
  const auto ranks = static_cast<double>(plan.pipeline), layers = static_cast<double>(task.decoder.shape.layers);
  const StageCosts all = table.stage(0, task.decoder.shape.layers, true, true);
  Candidate out{plan};
  // A rank's work is at least the average, and that of its largest stage.
  const double rank_s = std::max(work_seconds(all, split) / ranks,
                                 plan.layers.empty() || stages != static_cast<int64_t>(plan.layers.size())
                                     ? largest_stage_s(table, task.decoder.shape.layers, stages, split)
                                     : slowest_given_s(table, plan, split));
  out.bound_s = micro_batches * rank_s + (all.finish_s + all.reduce_s) / ranks;
  if (plan.pipeline == 1) out.bound_s -= std::min(all.reduce_s, backward_s(all, false));
  // Filling and draining: a stage's forward and backward pass on each other rank; zero bubble fills them with weight gradients.
  if (!split && plan.schedule != "auto") {
    const double ends_s = work_seconds(table.first, split) + work_seconds(table.last, split);
    const double layer_s = (work_seconds(all, split) - ends_s) / layers;
    out.bound_s += (ranks - 1) * layer_s * std::floor(layers / static_cast<double>(stages));
  }
  double slots = 0;
  for (size_t pool = 1; pool < 3; ++pool) slots += all.slots[pool];  // of one micro-batch in flight, at least
  out.least_bytes = (all.weights + all.gradients + all.optimizer + slots) / ranks;
  return out;
}

}  // namespace plait

#include "core/plan/simulate/plan_pricer.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/stage/stage.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/schedules.h"

namespace plait {
namespace {

double backward_s(const StageCosts& costs, bool split) {
  return split ? costs.of(Action::Kind::input_gradient).seconds + costs.of(Action::Kind::weight_gradient).seconds
               : costs.of(Action::Kind::backward).seconds;
}

void check(const Plan& plan, const PlanTask& task) {
  const auto fail = [](const std::string& message) {
    throw Error(Code::invalid_argument, cat("the plan's ", message));
  };
  const DecoderShape& shape = task.decoder.shape;
  if (plan.tensor > 1 && (shape.heads % plan.tensor || shape.feed_forward % plan.tensor))
    fail(cat("tensor=", plan.tensor, " does not divide ", shape.heads, " heads and a feed-forward size of ",
             shape.feed_forward));
  if (task.batch % plan.data) fail(cat("data=", plan.data, " does not divide a batch of ", task.batch, " samples"));
  if (plan.micro_batch < shape.sequence)
    fail(cat("micro-batch of ", plan.micro_batch, " tokens holds no sample, which has ", shape.sequence));
  if (task.batch / plan.data * shape.sequence % plan.micro_batch)
    fail(cat("micro-batch of ", plan.micro_batch, " tokens does not divide the ",
             task.batch / plan.data * shape.sequence, " tokens of a data rank"));
  if (plan.has_seed("sequence") && plan.micro_batch % plan.tensor)
    fail(cat("tensor=", plan.tensor, " does not divide the ", plan.micro_batch, " tokens of a micro-batch"));
}

/// Exchanges after a pipeline's lists, each of which waits for a link's latency once: the credit of the last message, a barrier with
/// all actions' times, the sum of losses (two, since ranks leave the barrier one latency apart), and the norm, which the first rank
/// asks for (two). Shaped links of 20 ms show six (ShapedRanks).
constexpr double pipeline_exchanges = 6;

ProbeTerms probe_terms(const Plan& plan, Recompute recompute) {
  // Weights that are sharded over data ranks are shared by them in other collectives than activations.
  const bool over_data = std::any_of(plan.seeds.begin(), plan.seeds.end(),
                                     [](const std::string& seed) { return seed.find("data") != std::string::npos; });
  return {.tensor = plan.tensor,
          .data = over_data ? plan.data : std::min<int64_t>(plan.data, 2),
          .zero = plan.zero,
          .recompute = recompute,
          .split = plan.terms().split,
          .seeds = plan.seeds};
}

/// The sections of a layer whose forward pass precedes its backward pass once more.
std::array<SectionCosts, 4> forward_again(const StageCosts& layer) {
  std::array<SectionCosts, 4> out = layer.sections;
  const SectionCosts& forward = layer.of(Action::Kind::forward);
  for (const Action::Kind kind : {Action::Kind::backward, Action::Kind::input_gradient}) {
    SectionCosts& one = out[static_cast<size_t>(kind)];
    if (one.seconds == 0) continue;
    one.seconds += forward.seconds;
    one.exposed_s += forward.exposed_s;
    one.flops += forward.flops;
  }
  return out;
}

/// One plan's simulation.
class Step {
 public:
  Step(const PlanTask& task, const Plan& plan, const StageTable& table) : task_(task), terms_(plan.terms()) {
    out_.plan = plan;
    out_.micro_batches = micro_batches_of(task, plan);
    if (out_.plan.layers.empty())
      out_.plan.layers = balanced_layers(table, task.decoder.shape.layers, terms_.seats, splits());
    const std::vector<int64_t>& layers = out_.plan.layers;
    if (layers.size() != terms_.seats.size() ||
        std::accumulate(layers.begin(), layers.end(), int64_t{0}) != task.decoder.shape.layers)
      throw Error(Code::invalid_argument,
                  cat("the plan has ", layers.size(), " stages of ",
                      std::accumulate(layers.begin(), layers.end(), int64_t{0}), " layers, expected ",
                      terms_.seats.size(), " of ", task.decoder.shape.layers));
    for (size_t i = 0; i < layers.size(); ++i)
      stages_.push_back(
          table.stage(std::accumulate(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i), int64_t{0}),
                      layers[i], i == 0, i + 1 == layers.size()));
  }

  StepPrice run() {
    steps_ = terms_.asynchronous ? window() : 1;
    const Schedule schedule = make(steps_);
    const ScheduleFacts facts = check_schedule(schedule);
    out_.timeline = timeline_of_lists(schedule, std::max(facts.places, 1));
    if (terms_.asynchronous) full_pipeline(facts);
    else whole_step();
    waits(schedule);
    end_of_step(schedule);
    memory(schedule, facts);
    out_.slots = slot_curves(schedule, out_.timeline, stages_);
    totals();
    return std::move(out_);
  }

 private:
  bool splits() const { return terms_.split && !terms_.whole; }
  const StageCosts& of(const Action& action) const { return stages_[static_cast<size_t>(action.stage)]; }
  double cost(const Action& action) const {
    if (action.kind != Action::Kind::update) return of(action).of(action.kind).seconds;
    return of(action).reduce_s + of(action).finish_s;
  }

  /// Steps of an asynchronous schedule, of which half fill the pipeline.
  int32_t window() const { return 2 * (static_cast<int32_t>(2 * out_.plan.pipeline / out_.micro_batches) + 2); }

  Schedule make(int32_t steps) const {
    ScheduleShape shape;
    shape.ranks = static_cast<int32_t>(out_.plan.pipeline);
    shape.micro_batches = static_cast<int32_t>(out_.micro_batches);
    shape.steps = steps;
    shape.global_norm = terms_.asynchronous;
    if (!out_.plan.seats.empty()) shape.seats = terms_.seats;
    shape.costs.action = [this](const Action& action) { return cost(action); };
    return make_schedule(out_.plan.schedule, shape);
  }

  /// Of a message between pipeline coordinates. Ranks along data and tensor send at the same time, over cards that they share.
  LinkTime link(int32_t from, int32_t to, double bytes) const {
    const Machine& machine = task_.machine;
    const Plan& plan = out_.plan;
    const int64_t apart = plan.data * plan.tensor;
    const LinkLevel& level = machine.level_between(from * apart, to * apart);
    const size_t at = static_cast<size_t>(&level - machine.levels.data());
    const int64_t users = at ? std::min(machine.levels[at - 1].ranks, apart) : 1;
    LinkTime out{level.latency_s, bytes / machine.bandwidth(level, users)};
    if (task_.cut_messages && plan.tensor > 1 && !plan.has_seed("sequence")) {
      std::vector<int32_t> group(static_cast<size_t>(plan.tensor));
      std::iota(group.begin(), group.end(), 0);
      out.latency_s += collective_seconds(CollectiveKind::all_gather, group, bytes, machine);
    }
    return out;
  }

  /// Between the first and the last pipeline coordinate.
  double farthest_latency_s() const {
    const Plan& plan = out_.plan;
    if (plan.pipeline == 1) return 0;
    return task_.machine.level_between(0, (plan.pipeline - 1) * plan.data * plan.tensor).latency_s;
  }

  Timeline timeline_of_lists(const Schedule& schedule, int32_t places) const {
    TimelineOptions options;
    options.places = places;
    options.credit_s = farthest_latency_s();
    options.cost = [this](const Action& action) { return cost(action); };
    options.link = [this](int32_t from, int32_t to, const Action& action, int32_t) {
      return link(from, to,
                  action.kind == Action::Kind::forward ? of(action).forward_bytes : of(action).backward_bytes);
    };
    return simulate(schedule, options);
  }

  void whole_step() {
    pipeline_s_ = out_.timeline.makespan_s;
    out_.bubble = out_.timeline.bubble();
  }

  /// What the second half of the window adds to the first.
  void full_pipeline(const ScheduleFacts& facts) {
    const Timeline half = timeline_of_lists(make(steps_ / 2), std::max(facts.places, 1));
    pipeline_s_ = (out_.timeline.makespan_s - half.makespan_s) / (steps_ - steps_ / 2);
    double busy = 0;
    for (size_t rank = 0; rank < half.ranks.size(); ++rank)
      busy += (out_.timeline.ranks[rank].busy_s - half.ranks[rank].busy_s) / (steps_ - steps_ / 2);
    if (pipeline_s_ > 0)
      out_.bubble = std::max(0.0, 1 - busy / (pipeline_s_ * static_cast<double>(half.ranks.size())));
  }

  void waits(const Schedule& schedule) {
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      double collectives = 0;
      for (const Action& action : schedule.ranks[rank])
        if (action.kind != Action::Kind::update) collectives += of(action).of(action.kind).exposed_s;
      out_.collectives_s = std::max(out_.collectives_s, collectives / steps_);
      out_.messages_s = std::max(out_.messages_s, out_.timeline.ranks[rank].mail_s / steps_);
    }
  }

  template <class Take>
  void for_stages_of(const Schedule& schedule, int32_t rank, const Take& take) const {
    for (size_t stage = 0; stage < schedule.seats.size(); ++stage)
      for (size_t seat = 0; seat < schedule.seats[stage].size(); ++seat)
        if (schedule.seats[stage][seat] == rank) take(stage, seat);
  }

  /// The sum of a stage's gradients over its seats, at the end of a step.
  double sum_over_seats(size_t stage, const std::vector<int32_t>& seats) const {
    if (seats.size() < 2) return 0;
    std::vector<int32_t> group;
    for (const int32_t seat : seats) group.push_back(seat * static_cast<int32_t>(out_.plan.data * out_.plan.tensor));
    return collective_seconds(CollectiveKind::all_reduce, group, stages_[stage].gradients, task_.machine);
  }

  /// Whether collectives over tensor and over data ranks use the same links, and so wait for each other.
  bool one_network() const {
    const int64_t tensor = out_.plan.tensor, data = out_.plan.data;
    return tensor > 1 && data > 1 &&
           &task_.machine.level_between(0, tensor - 1) == &task_.machine.level_between(0, (data - 1) * tensor);
  }

  /// Gradients are reduced, their norm is known to all, and weights are updated. An asynchronous schedule has this in its lists.
  void end_of_step(const Schedule& schedule) {
    std::vector<double> ends(schedule.ranks.size(), 0);  // of each rank's lists
    for (const TimelineSpan& span : out_.timeline.spans)
      ends[static_cast<size_t>(span.rank)] = std::max(ends[static_cast<size_t>(span.rank)], span.end_s);
    double reduced_s = 0;
    for (int32_t rank = 0; rank < static_cast<int32_t>(schedule.ranks.size()); ++rank) {
      double reduce = 0, update = 0, last = 0;
      for_stages_of(schedule, rank, [&](size_t stage, size_t) {
        reduce += stages_[stage].reduce_s + sum_over_seats(stage, schedule.seats[stage]);
        update += stages_[stage].finish_s;
        last += backward_s(stages_[stage], false);
        if (one_network()) last -= stages_[stage].of(Action::Kind::backward).exposed_s;
      });
      // Without stages gradients are reduced during the last micro-batch's backward pass.
      if (out_.plan.pipeline == 1) reduce = std::max(0.0, reduce - last);
      reduced_s = std::max(reduced_s, ends[static_cast<size_t>(rank)] + reduce);
      out_.reduce_s = std::max(out_.reduce_s, reduce);
      out_.update_s = std::max(out_.update_s, update);
    }
    // An asynchronous pipeline exchanges them once in many steps.
    if (!terms_.asynchronous) out_.control_s = pipeline_exchanges * farthest_latency_s();
    out_.step_s = terms_.asynchronous ? pipeline_s_ : reduced_s + out_.update_s + out_.control_s;
  }

  void memory(const Schedule& schedule, const ScheduleFacts& facts) {
    for (int32_t rank = 0; rank < static_cast<int32_t>(schedule.ranks.size()); ++rank) {
      PlannedBytes& bytes = out_.memory.emplace_back();
      for_stages_of(schedule, rank, [&](size_t stage, size_t seat) {
        const StageCosts& costs = stages_[stage];
        const LivePeaks& peaks = facts.seats[stage][seat];
        const double versions = facts.versions.empty() ? 1 : facts.versions[stage];
        bytes.weights += costs.weights * versions;
        if (task_.copies_in_work) bytes.weights += costs.trained_weights * dtype_bits(task_.work) / 32;
        bytes.gradients += costs.gradients;
        bytes.optimizer += costs.optimizer;
        bytes.arena = std::max(bytes.arena, costs.arena);
        const std::array<int32_t, 4> sets = {1, peaks.forward_to_input, peaks.forward_to_weight,
                                             peaks.input_to_weight};
        for (size_t pool = 0; pool < sets.size(); ++pool) bytes.slots += costs.slots[pool] * sets[pool];
        bytes.messages += (costs.forward_bytes + costs.backward_bytes) * std::max(facts.places, 0);
      });
    }
  }

  void totals() {
    const auto tokens = static_cast<double>(task_.batch * task_.decoder.shape.sequence);
    out_.tokens_per_second = tokens / out_.step_s;
    double flops = 0;  // of one tensor rank's forward passes
    for (const StageCosts& stage : stages_) flops += stage.of(Action::Kind::forward).flops;
    // The head's forward pass is part of its backward section.
    const DType type = task_.work != DType::none ? task_.work : DType::f32;
    const double head =
        2.0 *
        static_cast<double>(out_.plan.micro_batch * task_.decoder.shape.hidden * task_.decoder.shape.vocabulary) /
        static_cast<double>(out_.plan.tensor);
    const double passes = task_.training.lora.rank ? 2 : 3;  // frozen weights have no gradients
    const double needed =
        passes * (flops + head) * static_cast<double>(out_.micro_batches * out_.plan.data * out_.plan.tensor);
    out_.mfu =
        needed / (out_.step_s * task_.machine.device.peak.at(type).most() * static_cast<double>(out_.plan.ranks()));
  }

  const PlanTask& task_;
  const ScheduleTerms terms_;
  std::vector<StageCosts> stages_;
  int32_t steps_ = 1;      ///< that the lists have
  double pipeline_s_ = 0;  ///< of a step, without its end
  StepPrice out_;
};

}  // namespace

int64_t micro_batches_of(const PlanTask& task, const Plan& plan) {
  return task.batch / plan.data * task.decoder.shape.sequence / plan.micro_batch;
}

std::string Plan::mesh() const {
  std::vector<std::string> axes;
  for (const auto& [name, size] :
       {std::pair("pipeline", pipeline), std::pair("data", data), std::pair("tensor", tensor)})
    if (size > 1) axes.push_back(cat(name, "=", size));
  return join(axes, ",");
}

std::string Plan::seats_text() const {
  std::vector<std::string> widths;
  for (const int64_t one : seats) widths.push_back(cat(one));
  return join(widths, ":");
}

bool Plan::has_seed(std::string_view seed) const {
  return std::find(seeds.begin(), seeds.end(), seed) != seeds.end();
}

ScheduleTerms Plan::terms() const {
  return schedule_terms(schedule, static_cast<int32_t>(pipeline),
                        seats.empty() ? Seats() : parse_seat_widths(seats_text()));
}

double work_seconds(const StageCosts& costs, bool split) {
  return costs.of(Action::Kind::forward).seconds + backward_s(costs, split);
}

double StepPrice::most_bytes() const {
  double out = 0;
  for (const PlannedBytes& one : memory) out = std::max(out, one.total());
  return out;
}

std::vector<int64_t> balanced_layers(const StageTable& table, int64_t layers, const Seats& seats, bool split) {
  const size_t stages = seats.size();
  if (static_cast<int64_t>(stages) > layers + 2)
    throw Error(Code::invalid_argument, cat(layers, " layers, an embedding and a head make at most ", layers + 2,
                                            " stages, and ", stages, " are asked for"));
  std::vector<StageUnits::Unit> units;
  units.push_back({work_seconds(table.first, split), table.first.weights});
  for (int64_t i = 0; i < layers; ++i) units.push_back({work_seconds(table.layer(i), split), table.layer(i).weights});
  units.push_back({work_seconds(table.last, split), table.last.weights});
  std::vector<size_t> widths;
  for (const auto& of : seats) widths.push_back(of.size());
  std::vector<int64_t> out = balance(units, widths);
  out.front() -= 1;
  out.back() -= 1;
  return out;
}

const StageTable& PlanPricer::table(const Plan& plan) {
  Once<StageTable>& found =
      place_of(tables_, TableKey{probe_terms(plan, plan.recompute), plan.data, plan.micro_batch});
  const std::lock_guard lock(found.mutex);
  if (found.made) return *found.made;
  StageTable table = price_table(plan, plan.recompute, false);
  if (task_.whole_layers_again && plan.recompute == Recompute::full) {
    const StageTable kept = price_table(plan, Recompute::off, true);
    for (size_t i = 0; i < table.layers.size(); ++i) table.layers[i].sections = forward_again(kept.layers[i]);
  }
  found.made = std::make_unique<StageTable>(std::move(table));
  return *found.made;
}

const StageProbe& PlanPricer::probe(const ProbeTerms& terms) {
  Once<StageProbe>& found = place_of(probes_, terms);
  const std::lock_guard lock(found.mutex);
  if (found.refused) std::rethrow_exception(found.refused);
  try {
    if (!found.made) found.made = std::make_unique<StageProbe>(task_.decoder, task_.training, terms);
  } catch (const Error& error) {
    if (error.code() == Code::unsupported || error.code() == Code::invalid_argument)
      found.refused = std::current_exception();
    throw;
  }
  return *found.made;
}

StageTable PlanPricer::price_table(const Plan& plan, Recompute recompute, bool scores_kept) {
  PriceTerms price{task_.decoder.compile.ops, task_.machine, task_.work, task_.decoder.shape.sequence};
  price.cut_hidden = task_.cut_rows ? task_.decoder.shape.hidden : 0;
  price.scores_kept = scores_kept;
  return probe(probe_terms(plan, recompute)).price({plan.data, plan.micro_batch, task_.cut_messages}, price);
}

StepPrice PlanPricer::price(const Plan& plan) {
  check(plan, task_);
  return Step(task_, plan, table(plan)).run();
}

}  // namespace plait

#include "core/train/pipeline_rank.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/exec/store_keys.h"
#include "core/ranks/gather_timeline.h"

namespace plait {

PipelineRank::PipelineRank(const PipelineOptions& options, const TrainingModel& model, int64_t rank, Store& store,
                           std::shared_ptr<MemoryBudget> budget)
    : model_(model),
      store_(store),
      budget_(std::move(budget)),
      rank_(rank),
      coordinate_(model.mesh.block(rank, model.mesh.parts("pipeline"))),
      pipeline_(options, model.mesh) {
  pipeline_.set_edges(model.edges);
}

void PipelineRank::join(World* world, ProgramGroups& groups) {
  if (!world) return;
  for (const std::vector<int32_t>& members : model_.groups) groups.of(members);
  const Mesh& mesh = model_.mesh;
  const AxisList axis = mesh.parts("pipeline");
  if (axis.empty()) return;
  const std::vector<int64_t> ranks = mesh.group(rank_, axis);
  const std::vector<int32_t> members(ranks.begin(), ranks.end());
  control_ = world->communicator().split(members.front(), static_cast<int>(coordinate_));
  across_ = groups.of(members);
  std::set<std::vector<int32_t>> shared;
  for (const auto& [key, holders] : model_.holders)
    if (holders.size() > 1) shared.insert(holders);
  for (const std::vector<int32_t>& holders : shared) {
    const bool holds = std::find(holders.begin(), holders.end(), coordinate_) != holders.end();
    std::vector<int32_t> group;
    for (int32_t holder : holders) group.push_back(members[static_cast<size_t>(holder)]);
    if (!holds) group = {static_cast<int32_t>(rank_)};  // splitting is collective
    Communicator* const made = groups.of(group);
    if (holds) holders_[holders] = made;
  }
}

StageSections& PipelineRank::sections(TrainingProgram program, const StageSections::MakeExecutor& make) {
  std::unique_ptr<StageSections>& out = sections_[program];
  if (!out) out = std::make_unique<StageSections>(model_.sections.at(program), make, budget_, store_.device());
  return *out;
}

void PipelineRank::check(BatchInputs inputs, const StageSections::MakeExecutor& make) {
  sections(TrainingProgram::evaluate, make).check([&](const Program& one, int32_t) { return inputs.of(one); });
}

PipelineRank::Results PipelineRank::run(TrainingProgram program, std::span<BatchInputs> batches,
                                        const StageSections::MakeExecutor& make) {
  StageSections& sections = this->sections(program, make);
  Results out(batches.size());
  sections.begin(
      [&](const Program& one, int32_t micro_batch) { return batches[static_cast<size_t>(micro_batch)].of(one); },
      [&](int32_t micro_batch, int32_t number, const TensorView& value) {
        out[static_cast<size_t>(micro_batch)].emplace(number, copy_as(value, value.dtype));
      });
  const auto count = static_cast<int64_t>(batches.size());
  const bool trains = program == TrainingProgram::accumulate || program == TrainingProgram::backward;
  const Pipeline::Plan& plan = trains ? pipeline_.training(count) : pipeline_.forward(count);
  run(plan, sections);
  return out;
}

void PipelineRank::run(const Pipeline::Plan& plan, StageWork& work) {
  ActionRunner runner(across_, control_.get());
  runner.run(plan.schedule, plan.places, work);
  timeline_ = gather_timeline(control_.get(), plan.schedule, runner.spans());
}

WindowResult PipelineRank::run_window(const WindowOptions& options, std::span<const std::unique_ptr<BatchInputs>> batches,
                                      const StageSections::MakeExecutor& make, AsyncWindow::Optimizer optimizer) {
  StageSections& sections = this->sections(TrainingProgram::accumulate, make);
  const auto steps = static_cast<int64_t>(options.rates.size());
  WindowResult out;
  std::vector<double> losses(batches.size(), 0);
  sections.begin(
      [&](const Program& one, int32_t micro_batch) { return batches[static_cast<size_t>(micro_batch)]->of(one); },
      [&](int32_t micro_batch, int32_t number, const TensorView& value) {
        if (number == 0) losses[static_cast<size_t>(micro_batch)] = *copy_as(value, DType::f64).as<double>();
      });
  std::vector<bool> empty;
  for (const auto& one : batches) empty.push_back(one == nullptr);
  const Pipeline::Plan& plan = pipeline_.window(options.micro_batches, steps);
  AsyncWindow window(plan.schedule, model_, options, std::move(empty), sections, store_, *across_, *control_,
                     std::move(optimizer));
  run(plan, window);
  sum(losses);
  out.losses.assign(static_cast<size_t>(steps), 0);
  for (size_t k = 0; k < losses.size(); ++k) out.losses[k / static_cast<size_t>(options.micro_batches)] += losses[k];
  out.norms = window.norms();
  // Stages that check their own gradients only may stop at different steps.
  std::vector<double> first(static_cast<size_t>(control_->size()), 0);
  first[static_cast<size_t>(coordinate_)] = static_cast<double>(window.updates());
  sum(first);
  out.updates = static_cast<int64_t>(*std::min_element(first.begin(), first.end()));
  return out;
}

void PipelineRank::sum(std::span<double> numbers) const {
  if (!control_) return;
  control_->all_reduce({reinterpret_cast<std::byte*>(numbers.data()), DType::f64, {static_cast<int64_t>(numbers.size())}},
                       Reduction::sum);
}

int32_t PipelineRank::last_rank(int32_t micro_batch) const {
  const std::vector<int32_t>& seats = model_.stages.seats.back();
  return seats[static_cast<size_t>(micro_batch) % seats.size()];
}

Tensor& PipelineRank::share_result(Tensor& result, int32_t micro_batch) const {
  if (!control_) return result;
  const int32_t root = last_rank(micro_batch);
  struct Header {
    DType dtype;
    Shape shape;
  } header{result.dtype(), result.shape()};
  control_->broadcast({reinterpret_cast<std::byte*>(&header), DType::u8, {static_cast<int64_t>(sizeof header)}}, root);
  if (coordinate_ != root) result = Tensor(header.dtype, header.shape);
  control_->broadcast({result.data(), result.dtype(), {result.elements()}}, root);
  return result;
}

void PipelineRank::sum_over_holders() const {
  if (holders_.empty()) return;
  for (const TrainedParameter& parameter : model_.parameters) {
    const auto group = holders_.find(model_.holders.at(parameter.key));
    if (group == holders_.end()) continue;
    const Tensor sum = store_.get(store_keys::gradient(parameter.key));
    group->second->all_reduce({const_cast<std::byte*>(sum.data()), sum.dtype(), {sum.elements()}}, Reduction::sum);
  }
}

}  // namespace plait

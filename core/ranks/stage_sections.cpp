#include "core/ranks/stage_sections.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// The pools whose values no section after one of this kind reads.
std::vector<SlotPool> ending_with(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::forward: return {SlotPool::action};
    case Action::Kind::input_gradient: return {SlotPool::action, SlotPool::forward_to_input};
    case Action::Kind::weight_gradient: return {SlotPool::forward_to_weight, SlotPool::input_to_weight};
    default:
      return {SlotPool::action, SlotPool::forward_to_input, SlotPool::forward_to_weight, SlotPool::input_to_weight};
  }
}

}  // namespace

StageSections::StageSections(const std::vector<StageSection>& sections, const MakeExecutor& make,
                             std::shared_ptr<MemoryBudget> memory, Device& device)
    : memory_(std::move(memory)), device_(device) {
  for (const StageSection& section : sections)
    parts_[{section.stage, section.kind}] = std::make_unique<Part>(Part{&section, make(section.program)});
}

StageSections::Part* StageSections::find(const Action& action) const {
  const auto found = parts_.find({action.stage, action.kind});
  return found == parts_.end() ? nullptr : found->second.get();
}

StageSections::Part& StageSections::at(const Action& action) const {
  Part* const part = find(action);
  if (!part) throw Error(Code::internal, cat("this rank has no section for ", action.text()));
  return *part;
}

void StageSections::begin(Inputs inputs, OnResult on_result) {
  inputs_ = std::move(inputs);
  on_result_ = std::move(on_result);
  for (auto& [key, sets] : sets_)
    for (size_t pool = 0; pool < sets.size(); ++pool)
      if (sets[pool]) free_[{key.first, pool}].push_back(std::move(sets[pool]));
  sets_.clear();
}

void StageSections::check(const Inputs& inputs) {
  for (auto& [key, part] : parts_) part->executor->bind(inputs(part->executor->program(), 0));
}

void StageSections::set_watch(std::string* origin) {
  for (auto& [key, part] : parts_) part->executor->set_watch(origin);
}

void StageSections::prepare(const Action& action) {
  Executor& executor = *at(action).executor;
  executor.bind(inputs_(executor.program(), action.micro_batch));
  Sets& sets = sets_[{action.stage, action.micro_batch}];
  std::array<std::byte*, slot_pools> memory{};
  for (size_t pool = 0; pool < sets.size(); ++pool) {
    const int64_t bytes = executor.slot_bytes(static_cast<SlotPool>(pool));
    if (bytes == 0) continue;
    if (!sets[pool])
      sets[pool] = take(action.stage, pool,
                        std::max(bytes, planned_slot_bytes(executor.program(), static_cast<SlotPool>(pool))));
    memory[pool] = sets[pool]->mutable_data();
  }
  executor.set_slots(memory);
}

/// A set that is free, or a new one.
std::shared_ptr<Blob> StageSections::take(int32_t stage, size_t pool, int64_t bytes) {
  auto& free = free_[{stage, pool}];
  const auto fits = std::find_if(free.begin(), free.end(), [&](const auto& set) { return set->size() >= bytes; });
  if (fits != free.end()) {
    std::shared_ptr<Blob> out = std::move(*fits);
    free.erase(fits);
    return out;
  }
  for (const auto& small : free) slot_bytes_ -= small->size();
  free.clear();  // too small from now on
  slot_bytes_ += bytes;
  return memory_->take(bytes, device_);
}

void StageSections::run(const Action& action) {
  Part& part = at(action);
  part.executor->run(inputs_(part.executor->program(), action.micro_batch));
  for (size_t k = 0; k < part.section->results.size(); ++k)
    if (on_result_)
      on_result_(action.micro_batch, part.section->results[k], part.executor->output(static_cast<int>(k)));
}

Tensor StageSections::keep(const TensorView& value) {
  auto found = std::find_if(kept_.begin(), kept_.end(),
                            [&](const auto& blob) { return blob.use_count() == 1 && blob->size() >= value.bytes(); });
  if (found == kept_.end()) found = kept_.insert(kept_.end(), memory_->take(value.bytes(), device_));
  Tensor out(value.dtype, value.shape, *found);
  hand_over(value, out.view());
  return out;
}

void StageSections::hand_over(const TensorView& from, const TensorView& to) {
  PLAIT_ASSERT(from.bytes() == to.bytes());
  device_.copy(device_.queue(Device::Use::compute), to.data, from.data, from.bytes());
}

void StageSections::finish(const Action& action) {
  const auto found = sets_.find({action.stage, action.micro_batch});
  if (found == sets_.end()) return;
  for (SlotPool pool : ending_with(action.kind)) {
    std::shared_ptr<Blob>& set = found->second[static_cast<size_t>(pool)];
    if (set) free_[{action.stage, static_cast<size_t>(pool)}].push_back(std::move(set));
    set.reset();
  }
  if (std::none_of(found->second.begin(), found->second.end(), [](const auto& set) { return set != nullptr; }))
    sets_.erase(found);
}

}  // namespace plait

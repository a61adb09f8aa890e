#pragma once
// Work of a rank of a pipeline without a model: stages in a chain whose values name their maker.
#include <array>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ranks/action_runner.h"

namespace plait::test {

/// Every message is `values` arrays of `floats` elements. `run` throws Error(internal) if what was taken for an action
/// is not what its neighbour made for that micro-batch. One thread drives it.
class ChainWork : public StageWork {
 public:
  using Compute = std::function<void(const Action&)>;
  ChainWork(int32_t stages, int64_t floats, Compute compute = {}, int32_t values = 1)
      : stages_(stages), floats_(floats), values_(values), compute_(std::move(compute)) {
    for (int32_t i = 0; i < values; ++i) made_.emplace_back(DType::f32, Shape{floats});
    for (int32_t stage = 0; stage < stages; ++stage) {
      if (stage > 0) inward_[{stage, true}] = {slots(stage - 1)};
      if (stage > 0) outward_[{stage, false}] = {outputs(stage - 1)};
      if (stage + 1 < stages) outward_[{stage, true}] = {outputs(stage + 1)};
      if (stage + 1 < stages) inward_[{stage, false}] = {slots(stage + 1)};
    }
  }

  bool has(const Action&) const override { return true; }
  std::span<const StageMessage> takes(const Action& action) const override { return find(inward_, action); }
  std::span<const StageMessage> gives(const Action& action) const override { return find(outward_, action); }

  void prepare(const Action& action) override {
    if (takes(action).empty()) return;
    std::vector<Tensor>& slots = taken_[key(action)];
    while (static_cast<int32_t>(slots.size()) < values_) slots.push_back(new_slot());
  }
  TensorView taken(const Action& action, int32_t value) override {
    return taken_.at(key(action)).at(static_cast<size_t>(value - first_slot)).view();
  }
  void run(const Action& action) override {
    for (const StageMessage& message : takes(action))
      for (size_t i = 0; i < message.values.size(); ++i)
        check(action, taken(action, message.values[i]), label(action, message.stage, i));
    if (compute_) compute_(action);
    for (const StageMessage& message : gives(action))
      for (size_t i = 0; i < message.values.size(); ++i) {
        auto* const out = reinterpret_cast<float*>(given(action, message.values[i]).data);
        out[0] = out[floats_ - 1] = label(action, action.stage, i);
      }
  }
  TensorView given(const Action&, int32_t value) override { return made_.at(static_cast<size_t>(value)).view(); }
  Tensor keep(const TensorView& value) override {
    return Tensor::of(value.dtype, value.shape, std::span<const float>(value.as<float>(), static_cast<size_t>(floats_)));
  }
  void hand_over(const TensorView& from, const TensorView& to) override {
    std::copy_n(from.data, from.bytes(), to.data);
    ++handed_over_;
  }
  void finish(const Action& action) override {
    const auto found = taken_.find(key(action));
    if (found == taken_.end()) return;
    for (Tensor& slot : found->second) free_.push_back(std::move(slot));
    taken_.erase(found);
  }

  int64_t handed_over() const { return handed_over_; }

 private:
  static constexpr int32_t first_slot = 7;  ///< numbers of slots and outputs differ, as those of programs do
  using Key = std::tuple<int32_t, int32_t, bool>;
  using Messages = std::map<std::pair<int32_t, bool>, std::array<StageMessage, 1>>;

  static bool is_forward(const Action& action) { return action.kind == Action::Kind::forward; }
  static Key key(const Action& action) { return {action.stage, action.micro_batch, is_forward(action)}; }

  StageMessage slots(int32_t stage) const {
    StageMessage out{stage, {}};
    for (int32_t i = 0; i < values_; ++i) out.values.push_back(first_slot + i);
    return out;
  }
  StageMessage outputs(int32_t stage) const {
    StageMessage out{stage, {}};
    for (int32_t i = values_; i-- > 0;) out.values.push_back(i);
    return out;
  }
  static std::span<const StageMessage> find(const Messages& messages, const Action& action) {
    if (action.kind == Action::Kind::weight_gradient || action.kind == Action::Kind::update) return {};
    const auto found = messages.find({action.stage, is_forward(action)});
    return found == messages.end() ? std::span<const StageMessage>() : found->second;
  }
  Tensor new_slot() {
    if (free_.empty()) return Tensor(DType::f32, {floats_});
    Tensor out = std::move(free_.back());
    free_.pop_back();
    return out;
  }
  /// Of the i-th value that `maker` makes in the action's direction.
  float label(const Action& action, int32_t maker, size_t i) const {
    const int64_t message = (int64_t{action.micro_batch} * stages_ + maker) * 2 + is_forward(action);
    return static_cast<float>(message * values_ + static_cast<int64_t>(i));
  }
  void check(const Action& action, const TensorView& value, float expected) const {
    const auto* const got = reinterpret_cast<const float*>(value.data);
    if (got[0] != expected || got[floats_ - 1] != expected)
      throw Error(Code::internal, cat(action.text(), " took ", got[0], " instead of ", expected));
  }

  const int32_t stages_;
  const int64_t floats_;
  const int32_t values_;
  const Compute compute_;
  Messages inward_, outward_;
  std::map<Key, std::vector<Tensor>> taken_;
  std::vector<Tensor> free_, made_;
  int64_t handed_over_ = 0;
};

}  // namespace plait::test

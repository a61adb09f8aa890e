#include "core/ranks/action_runner.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/executor.h"

namespace plait {
namespace {

constexpr int64_t credit_tag = 1;

/// Of a value: micro-batch, the stages that it goes between, and its place in their message.
int64_t tag_of(const Schedule& schedule, int32_t from, int32_t to, int32_t micro_batch, size_t place) {
  const int64_t stages = schedule.stages, values = 1024;
  PLAIT_ASSERT(place < static_cast<size_t>(values));
  return 2 + ((int64_t{micro_batch} * stages + from) * stages + to) * values + static_cast<int64_t>(place);
}

/// Whether an action takes values of earlier stages, rather than gradients of later ones; nothing if neither.
std::optional<bool> takes_forward(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::forward: return true;
    case Action::Kind::backward:
    case Action::Kind::input_gradient: return false;
    default: return std::nullopt;
  }
}

/// Of each message that the rank takes, in the order in which it does: how many messages its sender gives this rank up
/// to and with the action that makes it.
std::vector<int32_t> given_before(const Schedule& schedule, int32_t rank, const StageWork& work) {
  using Made = std::tuple<int32_t, int32_t, bool>;  // stage, micro-batch, forward
  std::map<int32_t, std::map<Made, int32_t>> makers;  // by sender: positions of its actions
  struct Taken {
    int32_t from, position;
  };
  std::vector<Taken> order;
  std::map<int32_t, std::vector<int32_t>> positions;  // by sender, of its messages' makers
  for (const Action& action : schedule.ranks[static_cast<size_t>(rank)]) {
    const std::optional<bool> forward = takes_forward(action.kind);
    if (!forward || !work.has(action)) continue;
    for (const StageMessage& message : work.takes(action)) {
      const int32_t from = schedule.rank_of(message.stage, action.micro_batch);
      if (from == rank) continue;
      auto& of = makers[from];
      if (of.empty()) {
        int32_t position = 0;
        for (const Action& its : schedule.ranks[static_cast<size_t>(from)]) {
          if (const auto makes = takes_forward(its.kind)) of[{its.stage, its.micro_batch, *makes}] = position;
          ++position;
        }
      }
      order.push_back({from, of.at({message.stage, action.micro_batch, *forward})});
      positions[from].push_back(order.back().position);
    }
  }
  for (auto& [from, all] : positions) std::sort(all.begin(), all.end());
  std::vector<int32_t> out;
  for (const Taken& one : order) {
    const std::vector<int32_t>& all = positions[one.from];
    out.push_back(static_cast<int32_t>(std::upper_bound(all.begin(), all.end(), one.position) - all.begin()));
  }
  return out;
}

}  // namespace

void ActionRunner::run(const Schedule& schedule, int32_t places, StageWork& work) {
  places_ = places;
  spans_.clear();
  credited_.clear();
  not_taken_.clear();
  given_before_ = given_before(schedule, rank(), work);
  next_take_ = 0;
  kept_.clear();
  for (const Action& action : schedule.ranks.at(static_cast<size_t>(rank()))) {
    const auto timed = [&](const auto& task) {
      const double begin = monotonic_s();
      task();
      spans_.push_back({rank(), action, begin, monotonic_s()});
    };
    if (action.kind == Action::Kind::update) timed([&] { work.update(action); });
    if (action.kind == Action::Kind::update || !work.has(action)) continue;
    work.prepare(action);
    take(schedule, action, work);
    timed([&] { work.run(action); });
    give(schedule, action, work);
    work.finish(action);
  }
  for (auto& [to, count] : not_taken_)
    while (places_ > 0 && count > 0) await_credit(to);
}

void ActionRunner::take(const Schedule& schedule, const Action& action, StageWork& work) {
  for (const StageMessage& message : work.takes(action)) {
    const int32_t from = schedule.rank_of(message.stage, action.micro_batch);
    const auto tag = [&](size_t place) {
      return tag_of(schedule, message.stage, action.stage, action.micro_batch, place);
    };
    if (from == rank()) {
      for (size_t i = 0; i < message.values.size(); ++i)
        work.hand_over(kept_.extract(tag(i)).mapped().view(), work.taken(action, message.values[i]));
      continue;
    }
    const int32_t upto = given_before_[next_take_++];
    give_credit(from, upto - 1);  // what comes before is set aside while this waits
    for (size_t i = 0; i < message.values.size(); ++i)
      pipeline_->recv(work.taken(action, message.values[i]), from, tag(i), Patience::progress);
    give_credit(from, upto);
  }
}

void ActionRunner::give(const Schedule& schedule, const Action& action, StageWork& work) {
  for (const StageMessage& message : work.gives(action)) {
    const int32_t to = schedule.rank_of(message.stage, action.micro_batch);
    const auto tag = [&](size_t place) {
      return tag_of(schedule, action.stage, message.stage, action.micro_batch, place);
    };
    if (to == rank()) {
      for (size_t i = 0; i < message.values.size(); ++i)
        kept_[tag(i)] = work.keep(work.given(action, message.values[i]));
      continue;
    }
    int32_t& count = not_taken_[to];
    while (places_ > 0 && count >= places_) await_credit(to);
    for (size_t i = 0; i < message.values.size(); ++i)
      pipeline_->send(work.given(action, message.values[i]), to, tag(i));
    ++count;
  }
}

/// Tells a rank that so many of its messages have been taken, or are as soon as they come.
void ActionRunner::give_credit(int32_t to, int32_t taken) {
  if (places_ == 0) return;
  int32_t& credited = credited_[to];
  int64_t credit = taken - credited;
  if (credit <= 0) return;
  credited = taken;
  control_->send({reinterpret_cast<std::byte*>(&credit), DType::i64, {1}}, to, credit_tag);
}

void ActionRunner::await_credit(int32_t from) {
  int64_t credit = 0;
  control_->recv({reinterpret_cast<std::byte*>(&credit), DType::i64, {1}}, from, credit_tag, Patience::progress);
  not_taken_[from] -= static_cast<int32_t>(credit);
}

}  // namespace plait

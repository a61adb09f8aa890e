// Event-driven list scheduling: no look-ahead, but for weight gradients.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>

#include "core/schedule/generators.h"

namespace plait {
namespace {

using Kind = Action::Kind;
constexpr double same_time = 1e-12;

class Lister {
 public:
  explicit Lister(const ListRules& rules)
      : rules_(rules),
        stages_(static_cast<int32_t>(rules.seats.size())),
        back_(rules.split ? Kind::input_gradient : Kind::backward),
        ranks_(static_cast<size_t>(rules.ranks)) {
    for (const auto& of : rules.seats) turns_ = std::lcm(turns_, static_cast<int32_t>(of.size()));
    out_ = {stages_, rules.micro_batches, rules.seats, {}};
    out_.ranks.resize(static_cast<size_t>(rules.ranks));
  }

  std::optional<Schedule> run() {
    for (int32_t k = 0; k < rules_.micro_batches; ++k) offer({Kind::forward, 0, k}, 0);
    while (!events_.empty()) {
      now_ = std::get<0>(events_.top());
      while (!events_.empty() && std::get<0>(events_.top()) <= now_ + same_time) {
        const auto [time, order, ends, action] = events_.top();
        events_.pop();
        if (ends) end(action);
        else ready(action);
      }
      for (size_t rank = 0; rank < ranks_.size(); ++rank) begin(rank);
    }
    const int64_t all = static_cast<int64_t>(stages_) * rules_.micro_batches * (rules_.split ? 3 : 2);
    if (begun_ < all) return {};
    return std::move(out_);
  }

 private:
  /// What comes first: unit, micro-batch of its pipeline, depth; the last element is the micro-batch.
  using Key = std::array<int32_t, 4>;
  struct Earlier {
    bool operator()(const auto& a, const auto& b) const {
      return std::pair(std::get<0>(a), std::get<1>(a)) > std::pair(std::get<0>(b), std::get<1>(b));
    }
  };
  using Event = std::tuple<double, int64_t, bool, Action>;
  struct Rank {
    std::set<Key> forwards, backwards;
    std::deque<Action> weights;
    std::priority_queue<double, std::vector<double>, std::greater<>> coming;  ///< when something gets ready
    int32_t live = 0;
    bool busy = false;
  };

  size_t rank_of(const Action& action) const {
    return static_cast<size_t>(out_.rank_of(action.stage, action.micro_batch));
  }
  Key key_of(const Action& action) const {
    const int32_t turn = action.micro_batch / turns_;
    const int32_t depth = action.kind == Kind::forward ? -action.stage : action.stage;
    return {turn / rules_.unit, turn, depth, action.micro_batch};
  }
  void offer(const Action& action, double time) {
    events_.push({time, order_++, false, action});
    if (rules_.gap > 0) ranks_[rank_of(action)].coming.push(time);
  }
  void ready(const Action& action) {
    Rank& rank = ranks_[rank_of(action)];
    (action.kind == Kind::forward ? rank.forwards : rank.backwards).insert(key_of(action));
  }
  /// Another stage's action gets ready: at once on the same rank, otherwise after its message.
  void pass_on(const Action& from, int32_t stage) {
    const Action next{from.kind, stage, from.micro_batch};
    offer(next, now_ + (rank_of(next) == rank_of(from) ? 0 : rules_.link_s));
  }

  void end(const Action& action) {
    Rank& rank = ranks_[rank_of(action)];
    rank.busy = false;
    if (action.kind == Kind::backward || action.kind == Kind::weight_gradient) --rank.live;
    if (action.kind == Kind::input_gradient)
      rank.weights.push_back({Kind::weight_gradient, action.stage, action.micro_batch});
    if (action.kind == back_ && action.stage) pass_on(action, action.stage - 1);
    if (action.kind != Kind::forward) return;
    if (action.stage + 1 < stages_) pass_on(action, action.stage + 1);
    else offer({back_, action.stage, action.micro_batch}, now_);
  }

  std::optional<Action> choose(Rank& rank) {
    auto first = [](std::set<Key>& keys, Kind kind) {
      const Key key = keys.extract(keys.begin()).value();
      return Action{kind, std::abs(key[2]), key[3]};
    };
    const bool too_many = static_cast<int64_t>(rank.weights.size()) > rules_.most_waiting;
    if (!too_many && !rank.backwards.empty()) return first(rank.backwards, back_);
    if (!too_many && !rank.forwards.empty() && rank.live < rules_.most_live)
      return first(rank.forwards, Kind::forward);
    if (rank.weights.empty()) return {};
    const Action weight = rank.weights.front();
    if (!too_many && rules_.gap > 0) {
      while (!rank.coming.empty() && rank.coming.top() <= now_ + same_time) rank.coming.pop();
      if (!rank.coming.empty() && rank.coming.top() - now_ < rules_.gap * rules_.cost(weight)) return {};
    }
    rank.weights.pop_front();
    return weight;
  }

  void begin(size_t number) {
    Rank& rank = ranks_[number];
    if (rank.busy) return;
    const auto action = choose(rank);
    if (!action) return;
    rank.busy = true;
    if (action->kind == Kind::forward) ++rank.live;
    out_.ranks[number].push_back(*action);
    events_.push({now_ + rules_.cost(*action), order_++, true, *action});
    ++begun_;
  }

  const ListRules& rules_;
  const int32_t stages_;
  const Kind back_;
  int32_t turns_ = 1;  ///< micro-batches until every stage is at its first seat again
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, Earlier> events_;
  int64_t order_ = 0, begun_ = 0;
  double now_ = 0;
  Schedule out_;
};

}  // namespace

std::optional<Schedule> list_schedule(const ListRules& rules) { return Lister(rules).run(); }

}  // namespace plait

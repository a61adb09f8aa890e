#include "core/schedule/mail_plan.h"

#include <map>
#include <utility>

namespace plait {
namespace {

using Kind = Action::Kind;

class Planner {
 public:
  Planner(const Schedule& schedule, const std::vector<StageEdge>& edges)
      : schedule_(schedule),
        edges_(edges),
        inward_(static_cast<size_t>(schedule.stages)),
        outward_(static_cast<size_t>(schedule.stages)),
        numbers_(edges.size() * 2 * static_cast<size_t>(schedule.micro_batches), -1) {
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      inward_[static_cast<size_t>(edges[edge].to)].push_back(edge);
      outward_[static_cast<size_t>(edges[edge].from)].push_back(edge);
    }
  }

  MailPlan plan() {
    out_.ranks.resize(schedule_.ranks.size());
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) add_gives(static_cast<int32_t>(rank));
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) add_ops(static_cast<int32_t>(rank));
    for (const auto& ops : out_.ranks) out_.ops += static_cast<int64_t>(ops.size());
    return std::move(out_);
  }

 private:
  /// A message is one edge's values (forward), or their gradients, of one micro-batch.
  int32_t& number(size_t edge, bool forward, int32_t micro_batch) {
    return numbers_[(edge * 2 + forward) * static_cast<size_t>(schedule_.micro_batches) +
                    static_cast<size_t>(micro_batch)];
  }
  const std::vector<size_t>& edges_of(int32_t stage, bool in) const {
    return (in ? inward_ : outward_)[static_cast<size_t>(stage)];
  }
  /// What a forward gives, or a backward takes, goes along the outward edges, and the reverse.
  template <class Step>
  void for_each_message(const Action& action, bool given, Step step) {
    if (action.kind == Kind::weight_gradient || action.kind == Kind::update) return;
    const bool forward = action.kind == Kind::forward;
    for (const size_t edge : edges_of(action.stage, forward != given)) {
      const int32_t other = forward == given ? edges_[edge].to : edges_[edge].from;
      const int32_t here = schedule_.rank_of(action.stage, action.micro_batch);
      const int32_t there = schedule_.rank_of(other, action.micro_batch);
      if (here != there) step(number(edge, forward, action.micro_batch), there, other);
    }
  }
  int32_t pair_of(int32_t from, int32_t to) {
    const auto [at, added] = pairs_.try_emplace({from, to}, static_cast<int32_t>(out_.pairs.size()));
    if (added) out_.pairs.push_back({from, to, {}});
    return at->second;
  }

  /// Numbers the messages of each pair in the sender's order.
  void add_gives(int32_t rank) {
    const auto& list = schedule_.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < list.size(); ++i)
      for_each_message(list[i], true, [&](int32_t& number, int32_t to, int32_t) {
        auto& makers = out_.pairs[static_cast<size_t>(pair_of(rank, to))].makers;
        number = static_cast<int32_t>(makers.size());
        makers.push_back(static_cast<int32_t>(i));
      });
  }

  void add_ops(int32_t rank) {
    const auto& list = schedule_.ranks[static_cast<size_t>(rank)];
    auto& ops = out_.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < list.size(); ++i) {
      const auto position = static_cast<int32_t>(i);
      for_each_message(list[i], false, [&](int32_t number, int32_t from, int32_t) {
        ops.push_back({MailOp::What::take, position, pair_of(from, rank), number});
      });
      const auto seats = schedule_.seats[static_cast<size_t>(list[i].stage)].size();
      if (list[i].kind == Kind::update && seats > 1)
        ops.push_back({MailOp::What::arrive, position, meeting_of(list[i], static_cast<int32_t>(seats))});
      ops.push_back({MailOp::What::run, position});
      for_each_message(list[i], true, [&](int32_t number, int32_t to, int32_t stage) {
        ops.push_back({MailOp::What::give, position, pair_of(rank, to), number, stage});
      });
    }
  }

  int32_t meeting_of(const Action& update, int32_t seats) {
    const auto [at, added] =
        meetings_.try_emplace({update.stage, update.micro_batch}, static_cast<int32_t>(out_.meetings.size()));
    if (added) out_.meetings.push_back({seats, update});
    return at->second;
  }

  const Schedule& schedule_;
  const std::vector<StageEdge>& edges_;
  std::vector<std::vector<size_t>> inward_, outward_;  ///< edges by stage
  std::vector<int32_t> numbers_;                       ///< by message
  std::map<std::pair<int32_t, int32_t>, int32_t> pairs_, meetings_;
  MailPlan out_;
};

}  // namespace

MailPlan plan_mail(const Schedule& schedule, const std::vector<StageEdge>& edges) {
  return Planner(schedule, edges).plan();
}

}  // namespace plait

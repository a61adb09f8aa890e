// Event simulation: each rank runs its list, messages travel, and the earliest next event happens.
#include "core/schedule/timeline.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/mail_plan.h"

namespace plait {
namespace {

double usual_cost(const Action& action) {
  switch (action.kind) {
    case Action::Kind::backward: return 2;
    case Action::Kind::update: return 0;
    default: return 1;
  }
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const TimelineOptions& options)
      : schedule_(schedule),
        options_(options),
        plan_(plan_mail(schedule, options.edges.value_or(chain_edges(schedule.stages)))),
        ranks_(plan_.ranks.size()),
        meetings_(plan_.meetings.size()) {
    if (!options_.cost) options_.cost = usual_cost;
    std::map<int64_t, int32_t> wires;
    for (const MailPair& pair : plan_.pairs) {
      const int64_t own = static_cast<int64_t>(pair.from) * static_cast<int64_t>(ranks_.size()) + pair.to;
      const int64_t wire = options_.wire ? options_.wire(pair.from, pair.to) : own;
      pairs_.emplace_back().wire = wires.try_emplace(wire, static_cast<int32_t>(wires.size())).first->second;
    }
    wire_free_.assign(wires.size(), 0);
    out_.ranks.resize(ranks_.size());
  }

  Timeline run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) go(static_cast<int32_t>(rank), 0);
    while (!events_.empty()) {
      const auto [time, order, rank] = events_.top();
      events_.pop();
      now_ = time;
      advance(rank);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].at < plan_.ranks[rank].size())
        throw Error(Code::invalid_argument,
                    cat("schedule: rank ", rank, " never finishes, ranks wait for each other"),
                    "check_schedule tells which");
    for (RankTime& one : out_.ranks) one.idle_s = out_.makespan_s - one.busy_s;
    std::stable_sort(out_.spans.begin(), out_.spans.end(),
                     [](const TimelineSpan& a, const TimelineSpan& b) { return a.begin_s < b.begin_s; });
    return std::move(out_);
  }

 private:
  struct Pair {
    int32_t wire = 0;
    std::vector<double> made, arrives;  ///< by message given
    std::vector<double> freed;          ///< by message taken: when its sender knows of the place
    bool receiver_waits = false, sender_waits = false;
  };
  struct Rank {
    size_t at = 0;
    double since = 0;  ///< when it came to its current operation
  };
  using Event = std::tuple<double, int64_t, int32_t>;

  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  /// The rank looks at its next operation at that time.
  void go(int32_t rank, double time) { events_.push({time, order_++, rank}); }

  void advance(int32_t rank) {
    Rank& own = ranks_[index(rank)];
    while (own.at < plan_.ranks[index(rank)].size()) {
      const MailOp& op = plan_.ranks[index(rank)][own.at];
      bool done = true;
      switch (op.what) {
        case MailOp::What::take: done = take(rank, op); break;
        case MailOp::What::give: done = give(rank, op); break;
        case MailOp::What::arrive: done = arrive(rank, op); break;
        case MailOp::What::run: return act(rank, op);
      }
      if (!done) return;
      ++own.at;
      own.since = now_;
    }
  }

  void act(int32_t rank, const MailOp& op) {
    const Action& action = schedule_.ranks[index(rank)][index(op.position)];
    const double end = now_ + options_.cost(action);
    out_.spans.push_back({rank, action, now_, end});
    out_.ranks[index(rank)].busy_s += end - now_;
    out_.makespan_s = std::max(out_.makespan_s, end);
    ++ranks_[index(rank)].at;
    ranks_[index(rank)].since = end;
    go(rank, end);
  }

  /// Messages up to `number` of those given are taken at their arrival, or now.
  void free_places(int32_t pair_number, int32_t number) {
    Pair& pair = pairs_[index(pair_number)];
    for (size_t i = pair.freed.size(); i < pair.arrives.size() && i <= index(number); ++i)
      pair.freed.push_back(std::max(pair.arrives[i], now_) + options_.credit_s);
    if (!pair.sender_waits) return;
    pair.sender_waits = false;
    go(plan_.pairs[index(pair_number)].from, now_);
  }

  bool take(int32_t rank, const MailOp& op) {
    Pair& pair = pairs_[index(op.pair)];
    free_places(op.pair, op.number);
    if (pair.arrives.size() <= index(op.number)) {
      pair.receiver_waits = true;
      return false;
    }
    if (pair.arrives[index(op.number)] > now_) {
      go(rank, pair.arrives[index(op.number)]);
      return false;
    }
    const double ready = std::max(ranks_[index(rank)].since, pair.made[index(op.number)]);
    out_.ranks[index(rank)].mail_s += std::max(0.0, now_ - ready);
    return true;
  }

  bool give(int32_t rank, const MailOp& op) {
    Pair& pair = pairs_[index(op.pair)];
    Rank& own = ranks_[index(rank)];
    if (options_.places && op.number >= options_.places) {
      const size_t before = index(op.number - options_.places);
      if (pair.freed.size() <= before) {
        pair.sender_waits = true;
        return false;
      }
      if (pair.freed[before] > now_) {
        go(rank, pair.freed[before]);
        return false;
      }
      out_.ranks[index(rank)].places_s += now_ - own.since;
    }
    const MailPair& ends = plan_.pairs[index(op.pair)];
    const Action& action = schedule_.ranks[index(rank)][index(op.position)];
    const LinkTime link = options_.link ? options_.link(ends.from, ends.to, action, op.to_stage) : LinkTime{};
    double& free = wire_free_[index(pair.wire)];
    free = std::max(free, now_) + link.transfer_s;
    pair.made.push_back(now_);
    pair.arrives.push_back(free + link.latency_s);
    if (pair.receiver_waits) {
      pair.receiver_waits = false;
      go(ends.to, now_);
    }
    return true;
  }

  bool arrive(int32_t rank, const MailOp& op) {
    auto& present = meetings_[index(op.pair)];
    const auto seats = index(plan_.meetings[index(op.pair)].seats);
    if (std::find(present.begin(), present.end(), rank) == present.end()) {
      present.push_back(rank);
      if (present.size() == seats)
        for (const int32_t other : present)
          if (other != rank) go(other, now_);
    }
    return present.size() == seats;
  }

  const Schedule& schedule_;
  TimelineOptions options_;
  MailPlan plan_;
  std::vector<Pair> pairs_;
  std::vector<double> wire_free_;  ///< by link: the end of its last transfer
  std::vector<Rank> ranks_;
  std::vector<std::vector<int32_t>> meetings_;  ///< the ranks that have arrived
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t order_ = 0;  ///< equal times happen in the order in which they were found
  double now_ = 0;
  Timeline out_;
};

}  // namespace

double Timeline::bubble() const {
  double idle = 0;
  for (const RankTime& one : ranks) idle += one.idle_s;
  return ranks.empty() || makespan_s <= 0 ? 0 : idle / (makespan_s * static_cast<double>(ranks.size()));
}

Timeline simulate(const Schedule& schedule, const TimelineOptions& options) {
  return Simulation(schedule, options).run();
}

Timeline timeline_of(std::vector<TimelineSpan> spans, int32_t ranks) {
  Timeline out;
  out.ranks.resize(static_cast<size_t>(std::max(ranks, 0)));
  double first = spans.empty() ? 0 : spans[0].begin_s;
  for (const TimelineSpan& one : spans) {
    if (one.rank < 0 || one.rank >= ranks)
      throw Error(Code::invalid_argument,
                  cat("timeline: a span of rank ", one.rank, ", and there are ", ranks, " ranks"));
    first = std::min(first, one.begin_s);
  }
  for (TimelineSpan& one : spans) {
    one.begin_s -= first;
    one.end_s -= first;
    out.makespan_s = std::max(out.makespan_s, one.end_s);
    out.ranks[static_cast<size_t>(one.rank)].busy_s += one.end_s - one.begin_s;
  }
  for (RankTime& one : out.ranks) one.idle_s = out.makespan_s - one.busy_s;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const TimelineSpan& a, const TimelineSpan& b) { return a.begin_s < b.begin_s; });
  out.spans = std::move(spans);
  return out;
}

}  // namespace plait

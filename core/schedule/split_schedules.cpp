// Written lists with input and weight gradients as actions of their own.
#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "core/schedule/generators.h"

namespace plait {
namespace {

using Kind = Action::Kind;
constexpr Kind F = Kind::forward, B = Kind::backward, I = Kind::input_gradient, W = Kind::weight_gradient;

/// One rank's list, written in terms of "the next F of stage s": micro-batches of a kind and stage ascend.
class List {
 public:
  void put(Kind kind, int32_t stage) { actions_.push_back({kind, stage, count_[{kind, stage}]++}); }
  void put(Kind kind, int32_t stage, int32_t times) {
    for (int32_t i = 0; i < times; ++i) put(kind, stage);
  }
  int32_t count(Kind kind, int32_t stage) { return count_[{kind, stage}]; }
  std::vector<Action>& actions() { return actions_; }
  /// What is left of the list without later micro-batches. A list that finishes still does: an action waits for
  /// others of its own micro-batch only.
  std::vector<Action> until(int32_t micro_batches) {
    std::erase_if(actions_, [&](const Action& one) { return one.micro_batch >= micro_batches; });
    return std::move(actions_);
  }

 private:
  std::vector<Action> actions_;
  std::map<std::pair<Kind, int32_t>, int32_t> count_;
};

/// Each rank's list from a function of the rank.
template <class Write>
Schedule written(const ScheduleShape& shape, Seats seats, Write write) {
  Schedule out{static_cast<int32_t>(seats.size()), shape.micro_batches, std::move(seats), {}};
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    List list;
    write(list, rank);
    out.ranks.push_back(list.until(shape.micro_batches));
  }
  return out;
}

}  // namespace

Seats vee_seats(int32_t ranks, int32_t) {
  Seats out;
  for (int32_t stage = 0; stage < 2 * ranks; ++stage) out.push_back({stage < ranks ? stage : 2 * ranks - 1 - stage});
  return out;
}

// Zero bubble H1 (Qi et al. 2024): 1F1B whose weight gradients wait, on rank i for up to i micro-batches. As many
// sets as 1F1B.
Schedule make_zb_h1(const ScheduleShape& shape, int32_t) {
  if (!shape.seats.empty()) return make_seated(shape, true);
  const int32_t p = shape.ranks, m = shape.micro_batches;
  return written(shape, straight_seats(p, 1), [&](List& list, int32_t i) {
    list.put(F, i, std::min(m, p - 1 - i));
    for (int32_t back = 0; back < m; ++back) {
      if (list.count(F, i) < m) list.put(F, i);
      list.put(I, i);
      if (list.count(I, i) - list.count(W, i) > i) list.put(W, i);
    }
    list.put(W, i, m - list.count(W, i));
  });
}

// Zero bubble H2 (Qi et al. 2024): 2 (p - i) - 1 forwards in front, so that no rank has a gap; rank i begins and ends
// i slots later than rank 0.
Schedule make_zb_h2(const ScheduleShape& shape, int32_t) {
  const int32_t p = shape.ranks, m = shape.micro_batches;
  return written(shape, straight_seats(p, 1), [&](List& list, int32_t i) {
    list.put(F, i, std::min(m, 2 * (p - i) - 1));
    for (int32_t back = 1; back <= m; ++back) {
      list.put(I, i);
      if (back - list.count(W, i) > i) list.put(W, i);
      if (list.count(F, i) < m) list.put(F, i);
    }
    list.put(W, i, m - list.count(W, i));
  });
}

// ZB1P of PyTorch: interleaved, with the weight gradients of rank i put off by i turns.
Schedule make_zb_interleaved(const ScheduleShape& shape, int32_t chunks) {
  const int32_t p = shape.ranks;
  const Rounds rounds = interleaved_rounds(p, shape.micro_batches, chunks);
  const auto turns = static_cast<int32_t>(rounds.forward.size());
  return written(shape, looped_seats(p, chunks), [&](List& list, int32_t i) {
    auto add = [&](Kind kind, const Rounds::Turn& turn) {
      list.actions().push_back({kind, turn.chunk * p + i, turn.micro_batch});
    };
    const int32_t ahead = std::min(turns, (chunks - 1) * rounds.first + p - 1 - i);
    for (int32_t n = 0; n < ahead; ++n) add(F, rounds.forward[static_cast<size_t>(n)]);
    for (int32_t n = 0; n < turns + i; ++n) {
      if (ahead + n < turns) add(F, rounds.forward[static_cast<size_t>(ahead + n)]);
      if (n < turns) add(I, rounds.backward[static_cast<size_t>(n)]);
      if (n >= i) add(W, rounds.backward[static_cast<size_t>(n - i)]);
    }
  });
}

// ZB-V (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): rank i has stages i and 2p - 1 - i, and as
// many sets as 1F1B. Its pattern needs 2p - 1 micro-batches: of fewer, the rest is left out.
Schedule make_zb_v(const ScheduleShape& shape, int32_t) {
  const int32_t p = shape.ranks, n = std::max(2 * p - 1, shape.micro_batches);
  return written(shape, vee_seats(p, 1), [&](List& list, int32_t i) {
    const int32_t down = i, up = 2 * p - 1 - i;
    auto put = [&](std::initializer_list<std::pair<Kind, int32_t>> actions) {
      for (const auto& [kind, stage] : actions) list.put(kind, stage);
    };
    list.put(F, down, 2 * (p - i) - 1);
    for (int32_t k = 0; k < i; ++k) put({{F, up}, {F, down}});
    for (int32_t k = 0; k < p - i; ++k) put({{F, up}, {I, up}, {W, up}});
    while (list.count(F, up) < list.count(F, down) || list.count(F, down) < n) {
      if (list.count(F, down) < n) list.put(F, down);
      put({{I, down}, {W, down}, {F, up}, {I, up}, {W, up}});
    }
    for (int32_t k = 0; k < i; ++k) put({{I, down}, {I, up}});
    for (int32_t k = 0; k < p - i; ++k) put({{I, down}, {W, down}});
    for (const int32_t stage : {up, down}) list.put(W, stage, list.count(I, stage) - list.count(W, stage));
  });
}

// DualPipeV (DeepSeek 2025, the "cut-in-half" form of DualPipe): a V of two stages a rank. Its pattern needs 2p
// micro-batches: of fewer, the rest is left out.
Schedule make_dualpipe_v(const ScheduleShape& shape, int32_t) {
  const int32_t p = shape.ranks, m = std::max(2 * p, shape.micro_batches);
  return written(shape, vee_seats(p, 1), [&](List& list, int32_t i) {
    const int32_t down = i, up = 2 * p - 1 - i, later = p - 1 - i;
    std::map<int32_t, int32_t> backs;  // by stage
    std::deque<Action> waiting;        // weight gradients
    auto forward = [&](int32_t stage) { list.put(F, stage); };
    auto backward = [&](int32_t stage, bool split) {
      const int32_t k = backs[stage]++;
      list.actions().push_back({split ? I : B, stage, k});
      if (split) waiting.push_back({W, stage, k});
    };
    auto weight = [&] {
      if (waiting.empty()) return;
      list.actions().push_back(waiting.front());
      waiting.pop_front();
    };
    list.put(F, down, 2 * later);
    for (int32_t k = 0; k <= i; ++k) forward(down), forward(up);
    for (int32_t k = 0; k < later; ++k) backward(up, true), weight(), forward(up);
    for (int32_t k = 0; k < m - 2 * p + i + 1; ++k) {
      forward(down), backward(up, false);
      forward(up), backward(down, false);
    }
    for (int32_t k = 0; k < later; ++k) backward(up, false), forward(up), backward(down, false);
    // From half of the rest on backwards are split; an odd rank begins with its upper stage.
    const int32_t half = (i + 1) / 2;
    for (int32_t k = 0; k <= i; ++k) {
      backward(up, k > half || (k == half && i % 2 == 1));
      backward(down, k >= half);
    }
    for (int32_t k = 0; k < later; ++k) weight(), backward(down, true);
    while (!waiting.empty()) weight();
  });
}

}  // namespace plait

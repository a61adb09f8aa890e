// Written lists with whole backwards. Stages a rank: one, or as many as `number`.
#include <algorithm>

#include "core/schedule/generators.h"

namespace plait {
namespace {

using Kind = Action::Kind;

Schedule empty(const ScheduleShape& shape, Seats seats) {
  Schedule out;
  out.stages = static_cast<int32_t>(seats.size());
  out.micro_batches = shape.micro_batches;
  out.seats = std::move(seats);
  out.ranks.resize(static_cast<size_t>(shape.ranks));
  return out;
}

}  // namespace

Seats straight_seats(int32_t ranks, int32_t) { return looped_seats(ranks, 1); }

Seats looped_seats(int32_t ranks, int32_t stages_a_rank) {
  Seats out;
  for (int32_t chunk = 0; chunk < stages_a_rank; ++chunk)
    for (int32_t rank = 0; rank < ranks; ++rank) out.push_back({rank});
  return out;
}

// One micro-batch at a time through all ranks: model parallelism without a pipeline.
Schedule make_naive(const ScheduleShape& shape, int32_t) {
  Schedule out = empty(shape, straight_seats(shape.ranks, 1));
  for (int32_t rank = 0; rank < shape.ranks; ++rank)
    for (int32_t k = 0; k < shape.micro_batches; ++k)
      for (const Kind kind : {Kind::forward, Kind::backward})
        out.ranks[static_cast<size_t>(rank)].push_back({kind, rank, k});
  return out;
}

// All forwards, stage by stage, then all backwards: GPipe with one stage a rank (Huang et al. 2019), breadth-first
// with several (Lamy-Poirier 2023).
Schedule make_breadth_first(const ScheduleShape& shape, int32_t number) {
  Schedule out = empty(shape, shape.seats.empty() ? looped_seats(shape.ranks, std::max(number, 1)) : shape.seats);
  auto add = [&](Kind kind, int32_t stage) {
    for (int32_t k = 0; k < out.micro_batches; ++k)
      out.ranks[static_cast<size_t>(out.rank_of(stage, k))].push_back({kind, stage, k});
  };
  for (int32_t stage = 0; stage < out.stages; ++stage) add(Kind::forward, stage);
  for (int32_t stage = out.stages; stage-- > 0;) add(Kind::backward, stage);
  return out;
}

Rounds interleaved_rounds(int32_t ranks, int32_t micro_batches, int32_t chunks) {
  Rounds out;
  const int32_t rounds = std::max(1, micro_batches / ranks);
  for (int32_t round = 0, begin = 0; round < rounds; ++round) {
    const int32_t size = micro_batches / rounds + (round < micro_batches % rounds);
    if (!round) out.first = size;
    for (int32_t chunk = 0; chunk < chunks; ++chunk)
      for (int32_t k = begin; k < begin + size; ++k) {
        out.forward.push_back({chunk, k});
        out.backward.push_back({chunks - 1 - chunk, k});
      }
    begin += size;
  }
  return out;
}

// DAPPLE (Fan et al. 2021), PipeDream-Flush (Narayanan et al. 2021): rank i begins with p - 1 - i forwards, and then
// one forward and one backward in turn.
Schedule make_one_f_one_b(const ScheduleShape& shape, int32_t) {
  if (!shape.seats.empty()) return make_seated(shape, false);
  return make_interleaved(shape, 1);
}

// Narayanan et al. (SC 2021), for any number of micro-batches: stage c p + i is chunk c of rank i.
Schedule make_interleaved(const ScheduleShape& shape, int32_t chunks) {
  Schedule out = empty(shape, looped_seats(shape.ranks, chunks));
  const Rounds rounds = interleaved_rounds(shape.ranks, shape.micro_batches, chunks);
  const auto turns = static_cast<int32_t>(rounds.forward.size());
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    auto& list = out.ranks[static_cast<size_t>(rank)];
    auto add = [&](Kind kind, const Rounds::Turn& turn) {
      list.push_back({kind, turn.chunk * shape.ranks + rank, turn.micro_batch});
    };
    const int32_t later = shape.ranks - 1 - rank;
    const int32_t ahead = std::min(turns, chunks == 1 ? later : 2 * later + (chunks - 1) * rounds.first);
    for (int32_t n = 0; n < turns + ahead; ++n) {
      if (n < turns) add(Kind::forward, rounds.forward[static_cast<size_t>(n)]);
      if (n >= ahead) add(Kind::backward, rounds.backward[static_cast<size_t>(n - ahead)]);
    }
  }
  return out;
}

}  // namespace plait

#include "core/schedule/schedules.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/generators.h"

namespace plait {
namespace {

/// Ranks, stages a rank and micro-batches of a window stay below it: lists are made in memory.
constexpr int32_t most_listed = 1 << 20;

// Columns: name, number, usual, least, about, whole, split, asynchronous, takes_seats, seats, make.
constexpr ScheduleRow rows[] = {
    {"naive", "", 0, 0, "one micro-batch at a time, no pipeline", true, false, false, false, straight_seats,
     make_naive},
    {"gpipe", "", 0, 0, "all forwards, then all backwards (Huang et al. 2019)", true, false, false, true,
     straight_seats, make_breadth_first},
    {"1f1b", "", 0, 0, "a forward and a backward in turn: DAPPLE (Fan et al. 2021), PipeDream-Flush", true, false,
     false, true, straight_seats, make_one_f_one_b},
    {"interleaved", "stages a rank", 2, 1, "1f1b over several stages a rank (Narayanan et al., SC 2021)", true, false,
     false, false, looped_seats, make_interleaved},
    {"bfs", "stages a rank", 2, 1, "gpipe over several stages a rank, breadth-first (Lamy-Poirier 2023)", true, false,
     false, false, looped_seats, make_breadth_first},
    {"zb-h1", "", 0, 0, "zero bubble with 1f1b's memory (Qi et al. 2024)", false, true, false, true, straight_seats,
     make_zb_h1},
    {"zb-h2", "", 0, 0, "zero bubble with about twice 1f1b's memory (Qi et al. 2024)", false, true, false, false,
     straight_seats, make_zb_h2},
    {"zb-interleaved", "stages a rank", 2, 1, "interleaved with split backwards", false, true, false, false,
     looped_seats, make_zb_interleaved},
    {"zb-v", "", 0, 0, "zero bubble on a V of two stages a rank (Qi et al. 2024)", false, true, false, false,
     vee_seats, make_zb_v},
    {"dualpipe-v", "", 0, 0, "DualPipe cut in half: a V of two stages a rank (DeepSeek 2025)", true, true, false,
     false, vee_seats, make_dualpipe_v},
    {"chimera", "pairs of pipelines", 1, 1, "pipelines in both directions (Li and Hoefler 2021)", true, false, false,
     false, mirrored_seats, make_chimera},
    {"chimera-split", "pairs of pipelines", 1, 1, "chimera with split backwards", false, true, false, false,
     mirrored_seats, make_chimera_split},
    {"pipedream", "", 0, 0, "asynchronous, weights kept for each backward (Narayanan et al. 2019)", true, false, true,
     false, straight_seats, make_pipedream},
    {"2bw", "backwards between a step's last one and its update", 0, 0,
     "asynchronous, two versions of weights (Narayanan et al. 2021)", true, false, true, false, straight_seats,
     make_two_bw},
    {"auto", "stages a rank", 1, 1, "the fastest of these and of list scheduling, by simulation", true, true, false,
     true, looped_seats, make_auto},
    {"auto-v", "", 0, 0, "as auto, on a V of two stages a rank", true, true, false, false, vee_seats, make_auto_v},
};

Error bad(std::string message, std::string hint = {}) {
  return Error(Code::invalid_argument, std::move(message), std::move(hint));
}

struct Named {
  const ScheduleRow& row;
  int32_t number;
};

Named find(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view word = trimmed(name.substr(0, colon));
  const auto* row =
      std::find_if(std::begin(rows), std::end(rows), [&](const ScheduleRow& one) { return one.name == word; });
  if (row == std::end(rows)) {
    std::vector<std::string> names;
    for (const ScheduleRow& one : rows) names.push_back(one.number.empty() ? cat(one.name) : cat(one.name, ":N"));
    throw bad(cat("there is no schedule ", quote(word)), cat("schedules are ", join(names, ", "), ", or a file"));
  }
  if (colon == std::string_view::npos) return {*row, row->usual};
  if (row->number.empty()) throw bad(cat("schedule ", word, " has no number, given ", quote(name)));
  int64_t number = 0;
  if (!parse_int(trimmed(name.substr(colon + 1)), number) || number < row->least || number > most_listed)
    throw bad(cat("schedule ", quote(name), ": the number is ", row->number, ", at least ", row->least));
  return {*row, static_cast<int32_t>(number)};
}

void check_seats(const ScheduleRow& row, int32_t ranks, const Seats& seats) {
  if (!row.takes_seats) {
    std::vector<std::string> names;
    for (const ScheduleRow& one : rows)
      if (one.takes_seats) names.emplace_back(one.name);
    throw bad(cat("schedule ", row.name, " cannot have several seats a stage"),
              cat("use one of ", join(names, ", ")));
  }
  std::set<int32_t> seen;
  int64_t all = 0;
  for (const auto& of : seats) {
    if (of.empty()) throw bad(cat("schedule ", row.name, ": a stage has no seat"));
    for (const int32_t rank : of) {
      if (rank < 0 || rank >= ranks) throw bad(cat("schedule ", row.name, ": a seat on rank ", rank, " of ", ranks));
      seen.insert(rank);
      ++all;
    }
  }
  if (all != ranks || seen.size() != static_cast<size_t>(ranks))
    throw bad(cat("schedule ", row.name, ": ", all, " seats on ", seen.size(), " ranks, and there are ", ranks,
                  " pipeline ranks"),
              "with several seats a stage, each rank has one seat");
}

ScheduleTerms terms_of(const Named& named, int32_t ranks, const Seats& seats) {
  const ScheduleRow& row = named.row;
  if (ranks < 1 || ranks > most_listed) throw bad(cat("schedule ", row.name, " on ", ranks, " pipeline ranks"));
  // Only numbers of stages multiply with the ranks.
  if (row.seats == looped_seats && static_cast<int64_t>(named.number) * ranks > most_listed)
    throw bad(cat("schedule ", row.name, ":", named.number, " on ", ranks, " ranks has more than ", most_listed,
                  " stages"));
  ScheduleTerms out;
  out.seats = row.seats(ranks, std::max(named.number, 1));
  if (!seats.empty() && seats != out.seats) {
    check_seats(row, ranks, seats);
    out.seats = seats;
  }
  out.whole = row.whole;
  out.split = row.split;
  out.asynchronous = row.asynchronous;
  return out;
}

}  // namespace

std::span<const ScheduleRow> schedule_rows() { return rows; }

ScheduleTerms schedule_terms(std::string_view name, int32_t ranks, const Seats& seats) {
  return terms_of(find(name), ranks, seats);
}

Schedule make_schedule(std::string_view name, const ScheduleShape& shape) {
  const Named named = find(name);
  const ScheduleTerms terms = terms_of(named, shape.ranks, shape.seats);
  if (shape.micro_batches < 1 || shape.steps < 1 ||
      static_cast<int64_t>(shape.micro_batches) * shape.steps > most_listed)
    throw bad(cat("schedule ", name, ": ", shape.steps, " steps of ", shape.micro_batches, " micro-batches"),
              cat("at least one of each, at most ", most_listed, " micro-batches in all"));
  if (!terms.asynchronous && shape.steps != 1)
    throw bad(cat("schedule ", name, " is synchronous: it has lists of one step, asked for ", shape.steps),
              "windows of several steps are for pipedream and 2bw");
  ScheduleShape own = shape;
  if (own.seats == named.row.seats(shape.ranks, std::max(named.number, 1))) own.seats.clear();
  return named.row.make(own, named.number);
}

Seats parse_seat_widths(std::string_view text) {
  Seats out;
  int32_t rank = 0;
  for (const std::string& one : split(text, ':')) {
    int64_t width = 0;
    if (!parse_int(trimmed(one), width) || width < 1 || width > most_listed)
      throw bad(cat("seats ", quote(text), ": ", quote(one), " is no number of seats"),
                "\"15:1\" gives stage 0 fifteen ranks and stage 1 one");
    auto& seats = out.emplace_back();
    for (int64_t i = 0; i < width; ++i) seats.push_back(rank++);
    if (rank > most_listed) throw bad(cat("seats ", quote(text), ": more than ", most_listed, " ranks"));
  }
  return out;
}

}  // namespace plait

// PyTorch's lists of pipeline actions: torch.distributed.pipelining writes them as CSV files.
#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"

namespace plait {
namespace {

constexpr std::string_view skipped[] = {"SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};

/// An action of the file; in the older dialect its letter still has to be translated.
struct Cell {
  Action action;
  bool whole = false;  ///< written BW
};

/// Cuts "2BW7" to "2B7". Nothing for communication.
std::optional<Cell> cell_of(std::string_view word, size_t line, size_t column) {
  Error wrong(Code::invalid_argument,
              cat("schedule, line ", line, ", cell ", column, ": ", quote(word), " is no action"),
              "a cell of PyTorch's lists is an action such as 1F0, or empty");
  const size_t stage_digits = std::min(word.find_first_not_of("0123456789"), word.size());
  std::string_view rest = word.substr(stage_digits);
  for (const std::string_view name : skipped)
    if (stage_digits && rest.starts_with(name)) {
      rest.remove_prefix(name.size());
      if (rest.find_first_not_of("0123456789") != std::string_view::npos) throw wrong;
      return {};
    }
  Cell out;
  std::string plain(word);
  if (rest.starts_with("BW")) {
    out.whole = true;
    plain.erase(stage_digits + 1, 1);
  }
  const auto action = read_action(plain);
  if (!action || action->version >= 0 || action->kind == Action::Kind::update) throw wrong;
  out.action = *action;
  return out;
}

/// A cell's actions: "(0F1;3B0)OVERLAP_F_B" has two.
std::vector<std::string_view> parts_of(std::string_view cell) {
  constexpr std::string_view overlap = ")OVERLAP_F_B";
  if (!cell.starts_with('(') || !cell.ends_with(overlap)) return {cell};
  cell.remove_prefix(1);
  cell.remove_suffix(overlap.size());
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= cell.size();) {
    const size_t end = std::min(cell.find(';', begin), cell.size());
    out.push_back(trimmed(cell.substr(begin, end - begin)));
    begin = end + 1;
  }
  return out;
}

bool any_of_cells(const std::vector<std::vector<Cell>>& ranks, bool (*is)(const Cell&)) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](const auto& list) { return std::any_of(list.begin(), list.end(), is); });
}

/// In the older dialect B is the input gradient and BW the whole backward.
bool is_older(const std::vector<std::vector<Cell>>& ranks) {
  auto has = [&](Action::Kind kind) {
    return kind == Action::Kind::weight_gradient
               ? any_of_cells(ranks, [](const Cell& c) { return c.action.kind == Action::Kind::weight_gradient; })
               : any_of_cells(ranks, [](const Cell& c) { return c.action.kind == Action::Kind::input_gradient; });
  };
  if (has(Action::Kind::input_gradient)) return false;
  return has(Action::Kind::weight_gradient) || any_of_cells(ranks, [](const Cell& c) { return c.whole; });
}

/// Stages, micro-batches and seats, from the lists.
void find_seats(Schedule& out) {
  for (const auto& list : out.ranks)
    for (const Action& one : list) {
      out.stages = std::max(out.stages, one.stage + 1);
      out.micro_batches = std::max(out.micro_batches, one.micro_batch + 1);
    }
  if (out.stages > static_cast<int64_t>(1) << 16)
    throw Error(Code::invalid_argument,
                cat("schedule: it has ", out.stages, " stages, at most ", 1 << 16, " are read"));
  // The rank of each micro-batch's forward; the shortest period of those is the stage's seats.
  std::vector<std::vector<int32_t>> turns(static_cast<size_t>(out.stages));
  for (size_t rank = 0; rank < out.ranks.size(); ++rank)
    for (const Action& one : out.ranks[rank]) {
      auto& turn = turns[static_cast<size_t>(one.stage)];
      if (one.kind != Action::Kind::forward) continue;
      if (turn.size() <= static_cast<size_t>(one.micro_batch))
        turn.resize(static_cast<size_t>(one.micro_batch) + 1, -1);
      turn[static_cast<size_t>(one.micro_batch)] = static_cast<int32_t>(rank);
    }
  for (size_t stage = 0; stage < turns.size(); ++stage) {
    const auto& turn = turns[stage];
    size_t period = 1;
    while (period < turn.size() &&
           !std::equal(turn.begin() + static_cast<std::ptrdiff_t>(period), turn.end(), turn.begin()))
      ++period;
    if (turn.empty() || std::find(turn.begin(), turn.end(), -1) != turn.end())
      throw Error(Code::invalid_argument, cat("schedule: stage ", stage, " lacks forwards, so its ranks are unknown"),
                  "every stage needs a forward of every micro-batch");
    out.seats.emplace_back(turn.begin(), turn.begin() + static_cast<std::ptrdiff_t>(std::min(period, turn.size())));
  }
}

}  // namespace

Schedule read_torch_csv(std::string_view text) {
  std::vector<std::vector<Cell>> ranks;
  size_t line_number = 0;
  for (const std::string& whole : split(text, '\n')) {
    ++line_number;
    const std::string_view line = trimmed(std::string_view(whole).substr(0, whole.find('#')));
    if (line.empty()) continue;
    auto& list = ranks.emplace_back();
    size_t column = 0;
    for (const std::string& cell : split(line, ',')) {
      ++column;
      if (trimmed(cell).empty()) continue;
      for (const std::string_view word : parts_of(trimmed(cell)))
        if (auto one = cell_of(word, line_number, column)) list.push_back(*one);
    }
  }
  if (ranks.empty()) throw Error(Code::invalid_argument, "schedule: the text is empty");
  const bool older = is_older(ranks);
  Schedule out;
  for (const auto& cells : ranks) {
    auto& list = out.ranks.emplace_back();
    for (const Cell& cell : cells) {
      list.push_back(cell.action);
      if (older && cell.action.kind == Action::Kind::backward && !cell.whole)
        list.back().kind = Action::Kind::input_gradient;
    }
  }
  find_seats(out);
  return out;
}

}  // namespace plait

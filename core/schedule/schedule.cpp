#include "core/schedule/schedule.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr char letters[] = {'F', 'B', 'I', 'W', 'U'};
/// Numbers of stages, micro-batches and ranks stay far below overflow in whatever is computed from them.
constexpr int64_t most_number = 1 << 24;
constexpr std::string_view text_hint =
    "a schedule is written as \"stages 2 micro-batches 1 seats 0 1\" and a line a rank: \"0F0 0B0\"";

/// Words between blanks.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < line.size();) {
    const size_t begin = line.find_first_not_of(" \t\r", at);
    if (begin == std::string_view::npos) break;
    at = std::min(line.find_first_of(" \t\r", begin), line.size());
    out.push_back(line.substr(begin, at - begin));
  }
  return out;
}

int32_t number_of(std::string_view word, std::string_view what, size_t line) {
  int64_t out = 0;
  if (!parse_int(word, out) || out < 0 || out > most_number)
    throw Error(Code::invalid_argument, cat("schedule, line ", line, ": ", quote(word), " is no number of ", what),
                std::string(text_hint));
  return static_cast<int32_t>(out);
}

/// stages S micro-batches M seats 0,3 1,2 ...
void read_head(std::string_view text, size_t line, Schedule& out) {
  const auto words = words_of(text);
  if (words.size() < 5 || words[0] != "stages" || words[2] != "micro-batches" || words[4] != "seats")
    throw Error(Code::invalid_argument, cat("schedule, line ", line, ": ", quote(text), " is no first line"),
                std::string(text_hint));
  out.stages = number_of(words[1], "stages", line);
  out.micro_batches = number_of(words[3], "micro-batches", line);
  for (size_t i = 5; i < words.size(); ++i) {
    auto& seats = out.seats.emplace_back();
    for (const std::string& one : split(words[i], ',')) seats.push_back(number_of(one, "a rank", line));
  }
  if (out.seats.size() != static_cast<size_t>(out.stages))
    throw Error(Code::invalid_argument,
                cat("schedule, line ", line, ": seats of ", out.seats.size(), " stages, expected ", out.stages),
                "ranks of one stage are joined by commas, stages separated by blanks");
}

Action action_of(std::string_view word, size_t line) {
  const auto action = read_action(word);
  if (action) return *action;
  throw Error(
      Code::invalid_argument, cat("schedule, line ", line, ": ", quote(word), " is no action"),
      "an action is stage, F, B, I, W or U, and micro-batch: \"2F7\"; a forward may name a version: \"2F7@1\"");
}

}  // namespace

char action_letter(Action::Kind kind) { return letters[static_cast<size_t>(kind)]; }

std::string Action::text() const {
  std::string out = cat(stage, action_letter(kind), micro_batch);
  return version < 0 ? out : cat(out, '@', version);
}

std::optional<Action> read_action(std::string_view word) {
  auto number = [&](int32_t& out) {
    const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
    int64_t value = 0;
    if (!parse_int(word.substr(0, digits), value) || value > most_number) return false;
    word.remove_prefix(digits);
    out = static_cast<int32_t>(value);
    return true;
  };
  Action out;
  if (!number(out.stage) || word.empty()) return {};
  const auto* letter = std::find(std::begin(letters), std::end(letters), word[0]);
  if (letter == std::end(letters)) return {};
  out.kind = static_cast<Action::Kind>(letter - std::begin(letters));
  word.remove_prefix(1);
  if (!number(out.micro_batch)) return {};
  if (word.empty()) return out;
  if (word[0] != '@') return {};
  word.remove_prefix(1);
  if (!number(out.version) || !word.empty() || out.kind != Action::Kind::forward) return {};
  return out;
}

bool Schedule::is_asynchronous() const { return has(Action::Kind::update); }
bool Schedule::is_split() const { return has(Action::Kind::input_gradient); }

bool Schedule::is_consistent() const {
  return !is_asynchronous() || std::none_of(ranks.begin(), ranks.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Action& one) { return one.kind == Action::Kind::forward && one.version < 0; });
  });
}

bool Schedule::has(Action::Kind kind) const {
  return std::any_of(ranks.begin(), ranks.end(), [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const Action& one) { return one.kind == kind; });
  });
}

std::string Schedule::text() const {
  std::string out = cat("stages ", stages, " micro-batches ", micro_batches, " seats");
  for (const auto& of : seats) {
    for (size_t i = 0; i < of.size(); ++i) append(out, cat(i ? ',' : ' ', of[i]));
  }
  append(out, '\n');
  for (const auto& list : ranks) {
    for (size_t i = 0; i < list.size(); ++i) append(out, cat(i ? " " : "", list[i].text()));
    append(out, list.empty() ? "-\n" : "\n");
  }
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule out;
  bool begun = false;
  size_t number = 0;
  for (const std::string& whole : split(text, '\n')) {
    ++number;
    const std::string_view line = trimmed(std::string_view(whole).substr(0, whole.find('#')));
    if (line.empty()) continue;
    if (!begun && !line.starts_with("stages")) return read_torch_csv(text);
    if (!begun) {
      read_head(line, number, out);
    } else {
      auto& list = out.ranks.emplace_back();
      if (line == "-") continue;
      for (const std::string_view word : words_of(line)) list.push_back(action_of(word, number));
    }
    begun = true;
  }
  if (!begun) throw Error(Code::invalid_argument, "schedule: the text is empty", std::string(text_hint));
  return out;
}

}  // namespace plait

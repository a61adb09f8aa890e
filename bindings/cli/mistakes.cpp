#include "bindings/cli/mistakes.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace plait::cli {
namespace {

std::string with_dashes(std::string_view word) {
  std::string out(word);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

/// Insertions, deletions, replacements and swaps of neighbours (Damerau-Levenshtein, restricted).
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) out.push_back(one->get_name());
  return out;
}

/// Long flags of the command and of its groups, without dashes.
std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> out;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back(name);
  for (const CLI::App* group : command.get_subcommands([](const CLI::App*) { return true; })) {
    const auto more = flags_of(*group);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

std::string meant(const std::string& found, const std::string& where) {
  return found.empty() ? where : "did you mean " + found + "? " + where;
}

Mistake unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  const auto first = std::find_if(words.begin(), words.end(), [](const std::string& word) { return word[0] != '-'; });
  const std::string where = "`plait --help` lists the commands";
  if (first == words.end()) return {"a command is missing", where};
  return {"there is no command \"" + *first + "\"", meant(closest(*first, commands_of(app)), where)};
}

Mistake unexpected(const CLI::App& command) {
  const std::string name = "`plait " + command.get_name(), where = name + " --help` lists its options";
  const std::vector<std::string> left = command.remaining();
  const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (flag == left.end()) return {"there is no place for \"" + left.front() + "\" in " + name + "`", where};
  const std::string given = flag->substr(0, flag->find('='));
  const std::string found = closest(given.substr(std::min(given.find_first_not_of('-'), given.size())), flags_of(command));
  return {name + "` has no option " + given, meant(found.empty() ? "" : "--" + found, where)};
}

bool is_letter(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_'; }

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string given = with_dashes(word);
  std::string out;
  size_t best = std::max<size_t>(1, given.size() / 3) + 1;
  for (const std::string& one : candidates)
    if (const size_t far = distance(given, with_dashes(one)); far < best) best = far, out = one;
  return out;
}

Mistake mistake_of(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty()) return unknown_command(app, words);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !chosen[0]->remaining().empty()) return unexpected(*chosen[0]);
  std::string message = error.what();
  if (const size_t end = message.find(": At Most 1 required"); end != std::string::npos)
    message = message.substr(0, end) + " is given more than once";
  return {message, "`plait " + chosen[0]->get_name() + " --help` explains"};
}

std::string in_flags(const std::string& message, const CLI::App& command) {
  const std::vector<std::string> flags = flags_of(command);
  const std::string mark = "option ";
  std::string out;
  for (size_t at = 0; at < message.size();) {
    if (!is_letter(message[at]) || (at > 0 && message[at - 1] == '-')) {
      out += message[at++];
      continue;
    }
    size_t end = at;
    while (end < message.size() && is_letter(message[end])) ++end;
    const std::string word = message.substr(at, end - at), flag = with_dashes(word);
    const bool announced = out.ends_with(mark), typical = word.find('_') != std::string::npos;
    if ((announced || typical) && std::find(flags.begin(), flags.end(), flag) != flags.end()) {
      if (announced) out.resize(out.size() - mark.size());
      out += "--" + flag;
    } else {
      out += word;
    }
    at = end;
  }
  return out;
}

}  // namespace plait::cli

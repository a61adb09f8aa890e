#pragma once
// Errors of the command line in its own words: which command, which flag, and what may have been meant.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace plait::cli {

/// The candidate that `word` most likely is a misspelling of; "" if none is near. '_' counts as '-'.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

struct Mistake {
  std::string message, hint;
};
/// Explains why the words were not accepted. `app` has parsed as much of them as it could.
Mistake mistake_of(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

/// A message of the library with its options as flags of the command: "option cut_long" becomes "--cut-long". Options
/// that have no flag stay as --option takes them.
std::string in_flags(const std::string& message, const CLI::App& command);

}  // namespace plait::cli

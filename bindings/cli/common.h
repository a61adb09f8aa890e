#pragma once
// What several commands need.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/plait.hpp"
#include "bindings/cli/commands.h"

namespace plait::cli {

/// The arguments as the options of a model, of what is made from it, and of the world of processes it is made on.
struct OptionSets {
  plait_api::Options model, rest, world;
};
/// `for_what` is the scope of `rest`: "generator" (which takes those of requests, too), "session", "trainer" or
/// "export" (which takes those of generators, too).
OptionSets option_sets(const ModelArguments& arguments, const std::string& for_what);

/// Sets an option that the user wrote. Throws UsageError when it does not fit.
void set_option(plait_api::Options& options, const std::string& key, const std::string& value);

/// The world of the processes that mpirun started, if it did and there is a mesh to spread over them; else none. On ranks
/// but 0 a command does nothing but serve.
plait_api::World open_world(const ModelArguments& arguments, const OptionSets& options);
bool is_worker(const plait_api::World& world);
/// Of threads, or on the world's processes.
template <class Made>
Made make_on(const plait_api::World& world, const plait_api::Model& model, const plait_api::Options& options) {
  return world ? Made(world, model, options) : Made(model, options);
}

/// Writes a text to a file. Throws UsageError when that cannot be.
void write_file(const std::string& path, std::string_view text);

/// "1,5,7", blanks allowed. Throws UsageError.
std::vector<int32_t> parse_ids(std::string_view text);

/// "-" is stdin. Throws UsageError.
std::string read_all(const std::string& path);

/// "268.1 M", "536.2 MB": three to four digits.
std::string rounded(double number, const char* unit);

/// Cells in columns as wide as their widest, the last one free.
std::string columns(const std::vector<std::vector<std::string>>& rows);

/// Splits "NAME=VALUE" at the first '='. Throws UsageError.
std::pair<std::string, std::string> name_and_value(const std::string& text, std::string_view option);

/// Writes to stdout at once. Throws std::runtime_error when nobody takes it.
void answer(std::string_view text);

/// Of this process, so far.
int64_t peak_memory_bytes();

/// From now on Ctrl-C sets a flag, once; a second one ends the process.
void catch_interrupt();
bool interrupted();
constexpr int64_t patience_ms = 100;  ///< how late Ctrl-C may be noticed

/// Waits for a model, a generator or a trainer; false when it was interrupted, which calls it off.
template <class Object>
bool load(const Object& object) {
  while (!object.wait(patience_ms)) {
    if (interrupted()) {
      object.cancel();
      return false;
    }
  }
  return true;
}

}  // namespace plait::cli

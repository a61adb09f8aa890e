#pragma once
// Shared by several commands.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/plait.hpp"
#include "bindings/cli/commands.h"

namespace plait::cli {

/// The arguments as options of a model, of the object created from it, and of its world of processes.
struct OptionSets {
  plait_api::Options model, rest, world;
};
/// `for_what` is the scope of `rest`: "generator" (with requests' options), "session", "trainer" or "export" (with
/// generators' options).
OptionSets option_sets(const ModelArguments& arguments, const std::string& for_what);

/// Sets a user's option. Throws UsageError if it is invalid.
void set_option(plait_api::Options& options, const std::string& key, const std::string& value);

struct LogLine {
  plait_log_level level;
  std::string text;
};
/// Takes the oldest line of the model's log.
std::optional<LogLine> next_log(const plait_api::Model& model);
/// Prints warnings of the model's log, what was chosen for the mesh auto, and where a resumed run begins, to stderr.
void print_log(const plait_api::Model& model);

/// The world of the processes that mpirun started, if any; otherwise empty. On ranks other than 0 a command only serves.
/// Throws UsageError for several processes without a mesh.
plait_api::World open_world(const ModelArguments& arguments, const OptionSets& options);
bool is_worker(const plait_api::World& world);
/// Creates it on threads, or on the world's processes.
template <class Made>
Made make_on(const plait_api::World& world, const plait_api::Model& model, const plait_api::Options& options) {
  return world ? Made(world, model, options) : Made(model, options);
}

/// Names in a directory; none if there is no such directory. Throws UsageError if it cannot be read.
std::vector<std::string> names_in(const std::string& directory);

/// Writes a text to a file, which has all of it or is as before. Throws UsageError if it cannot be written.
void write_file(const std::string& path, std::string_view text);

/// "1,5,7", blanks allowed. Throws UsageError.
std::vector<int32_t> parse_ids(std::string_view text);

/// Rows of plait_options_describe for objects of this kind: "request", "trainer".
std::vector<nlohmann::json> option_rows(const std::string& kind);

/// "-" is stdin. Throws UsageError.
std::string read_all(const std::string& path);

/// "268.1 M", "536.2 MB": three to four digits.
std::string rounded(double number, const char* unit);

/// "1.25 s", "12.5 ms".
std::string seconds_text(double seconds);

/// Aligns cells in columns; the last one is not padded.
std::string columns(const std::vector<std::vector<std::string>>& rows);

/// Splits "NAME=VALUE" at the first '='. Throws UsageError.
std::pair<std::string, std::string> name_and_value(const std::string& text, std::string_view option);

/// Writes to stdout and flushes. Throws std::runtime_error if that fails.
void answer(std::string_view text);

/// Of this process, so far.
int64_t peak_memory_bytes();

/// From now on the first Ctrl-C or SIGTERM sets a flag; a second one, half a second later or more, ends the process.
void catch_interrupt();
bool interrupted();
constexpr int64_t patience_ms = 100;  ///< bounds the delay of Ctrl-C

/// While it lives, Ctrl-C sets the flag of `interrupted` however often it comes; before and after, it ends the process.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
};

/// The loss of a model on a file; nothing if it was interrupted.
std::optional<plait_evaluation> evaluated(const EvalArguments& arguments, OptionSets& options,
                                          const plait_api::World& world);
/// A directory's files with their bytes, the largest first.
std::vector<std::pair<std::string, uintmax_t>> files_of(const std::string& directory);
/// Lists them on stderr.
void print_written(const std::string& directory);

/// Waits for a model, a generator or a trainer; false if it was interrupted, which cancels it.
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

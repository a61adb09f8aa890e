#include "bindings/cli/common.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

namespace plait::cli {
namespace {

volatile std::sig_atomic_t interrupt_came = 0;
std::atomic<int64_t> first_interrupt_ms = 0;
constexpr int64_t same_interrupt_ms = 500;

void on_interrupt(int signal) {
  // Some senders (timeout, launchers) reach a process twice, by its id and by its group: those two are one.
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
  if (interrupt_came && ms - first_interrupt_ms > same_interrupt_ms) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  } else if (!interrupt_came) {
    first_interrupt_ms = ms;
  }
  interrupt_came = 1;
}

/// Whether the option is for objects of that kind, from the library's table.
bool is_for(const nlohmann::json& rows, const std::string& key, std::initializer_list<std::string_view> kinds) {
  for (const auto& row : rows) {
    if (row.at("key") != key) continue;
    for (const auto& kind : row.at("for")) {
      if (std::find(kinds.begin(), kinds.end(), kind.get<std::string>()) != kinds.end()) return true;
    }
  }
  return false;
}

/// Whether an option is a tensor, which the command line reads from a file.
bool is_tensor(const std::string& key) {
  const auto rows = nlohmann::json::parse(plait_api::tensor(plait_options_describe).text());
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return row.at("key") == key && row.at("type") == "a tensor"; });
}

}  // namespace

void set_option(plait_api::Options& options, const std::string& key, const std::string& value) {
  try {
    if (is_tensor(key)) options.set(key, plait_api::Tensor::read(value));
    else options.set(key, value);
  } catch (const plait_api::Failure& failure) {
    throw UsageError(failure.what(), failure.hint());
  }
}

OptionSets option_sets(const ModelArguments& arguments, const std::string& for_what) {
  OptionSets out;
  if (!arguments.cache_dir.empty()) out.model.set("cache_dir", arguments.cache_dir);
  if (!arguments.log_dir.empty()) out.model.set("log_dir", arguments.log_dir);
  set_option(out.rest, "threads", std::to_string(arguments.threads));
  set_option(out.rest, "dtype", arguments.dtype);
  const bool trains = for_what == "trainer";
  if (!arguments.trace.empty())
    set_option(out.rest, trains ? "timeline" : "trace", trains ? arguments.trace : "true");
  if (!arguments.mesh.empty()) set_option(out.rest, "mesh", arguments.mesh);
  for (const std::string& seed : arguments.seeds) set_option(out.rest, "seeds", seed);
  if (arguments.options.empty()) return out;
  auto rows = nlohmann::json::parse(plait_api::tensor(plait_options_describe).text());
  for (const std::string& option : arguments.options) {
    auto [key, value] = name_and_value(option, "--option");
    bool of_model = is_for(rows, key, {"model"});
    bool of_rest = for_what == "generator" ? is_for(rows, key, {"generator", "request"})
                   : for_what == "export"  ? is_for(rows, key, {"export", "generator"})
                                           : is_for(rows, key, {for_what});
    bool of_world = !arguments.mesh.empty() && is_for(rows, key, {"world"});
    if (!of_model && !of_rest && !of_world)
      throw UsageError("option " + key + " has no effect here", "`plait options` lists them");
    if (of_model) set_option(out.model, key, value);
    else if (of_rest) set_option(out.rest, key, value);
    if (of_world) set_option(out.world, key, value);
  }
  return out;
}

plait_api::World open_world(const ModelArguments& arguments, const OptionSets& options) {
  // Variables that mpirun, srun and the like set for their processes.
  const char* const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_SIZE"};
  const bool started =
      std::any_of(std::begin(marks), std::end(marks), [](const char* mark) { return std::getenv(mark); });
  if (!started) return {};
  if (!arguments.mesh.empty()) return plait_api::World(options.world);
  // Each process would do all of the work, and print it.
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"})
    if (const char* count = std::getenv(size); count && std::atoi(count) > 1)
      throw UsageError(std::string("there are ") + count + " processes, and no --mesh that gives each its part",
                       std::string("for example --mesh data=") + count + ", or start one process");
  return {};
}

std::optional<LogLine> next_log(const plait_api::Model& model) {
  plait_log_level level{};
  plait_tensor* text = nullptr;
  plait_api::check(plait_log_next(model.get(), &level, &text));
  if (!text) return std::nullopt;
  return LogLine{level, plait_api::Tensor(text).text()};
}

void print_log(const plait_api::Model& model) {
  while (const std::optional<LogLine> line = next_log(model)) {
    if (line->level == PLAIT_LOG_WARNING) std::fprintf(stderr, "plait: warning: %s\n", line->text.c_str());
    else if (line->text.starts_with("mesh auto: ") || line->text.starts_with("resume: "))
      std::fprintf(stderr, "plait: %s\n", line->text.c_str());  // was asked for
  }
}

std::vector<nlohmann::json> option_rows(const std::string& kind) {
  std::vector<nlohmann::json> out;
  for (const auto& row : nlohmann::json::parse(plait_api::tensor(plait_options_describe).text())) {
    const auto& kinds = row.at("for");
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) out.push_back(row);
  }
  return out;
}

bool is_worker(const plait_api::World& world) { return world && world.rank() != 0; }

std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> out;
  const char* at = text.data();
  const char* end = at + text.size();
  auto blank = [](char letter) {
    return letter == ' ' || letter == ',' || letter == '\n' || letter == '\t' || letter == '\r';
  };
  while (true) {
    while (at < end && blank(*at)) ++at;
    if (at == end) return out;
    int32_t id = 0;
    auto [next, failure] = std::from_chars(at, end, id);
    if (failure != std::errc() || (next < end && !blank(*next))) {
      throw UsageError("token ids are numbers separated by commas, got \"" + std::string(text.substr(0, 60)) + "\"",
                       "for example --ids 1,5,7");
    }
    out.push_back(id);
    at = next;
  }
}

std::string read_all(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(path == "-" ? nullptr : std::fopen(path.c_str(), "rbe"), std::fclose);
  std::FILE* file = path == "-" ? stdin : opened.get();
  const auto refuse = [&] { throw UsageError("cannot read \"" + path + "\": " + std::strerror(errno)); };
  if (!file) refuse();
  std::string out;
  char part[1 << 14];
  while (const size_t count = std::fread(part, 1, sizeof part, file)) out.append(part, count);
  if (std::ferror(file)) refuse();  // not the end of the file
  return out;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> out;
  DIR* open = ::opendir(directory.c_str());
  if (!open && (errno == ENOENT || errno == ENOTDIR)) return out;
  const auto refuse = [&](int why) { throw UsageError("cannot list \"" + directory + "\": " + std::strerror(why)); };
  if (!open) refuse(errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> closes(open, ::closedir);
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open);
    if (!entry && errno) refuse(errno);
    if (!entry) return out;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.emplace_back(name);
  }
}

void write_file(const std::string& path, std::string_view text) {
  const std::filesystem::file_status there = std::filesystem::status(path);
  const bool whole = !std::filesystem::exists(there) || std::filesystem::is_regular_file(there);  // and not a pipe
  const std::string draft = whole ? path + ".tmp-" + std::to_string(::getpid()) : path;
  const auto refuse = [&](int why) {
    if (whole) ::unlink(draft.c_str());
    throw UsageError("cannot write \"" + path + "\": " + std::strerror(why));
  };
  std::FILE* file = std::fopen(draft.c_str(), "wbe");
  if (!file) refuse(errno);
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (written && whole) written = ::fsync(::fileno(file)) == 0;
  const int why = errno;
  if (std::fclose(file) != 0 || !written) refuse(written ? errno : why);
  if (whole && std::rename(draft.c_str(), path.c_str()) != 0) refuse(errno);
}

std::string rounded(double number, const char* unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T"};
  int power = 0;
  for (; number >= 1000 && power < 4; ++power) number /= 1000;
  char text[64];
  std::snprintf(text, sizeof text,
                power   ? "%.1f %s%s"
                : *unit ? "%.0f %s%s"
                        : "%.0f%s%s",
                number, prefixes[power], unit);
  return text;
}

std::string seconds_text(double seconds) {
  char text[32];
  if (seconds >= 1) std::snprintf(text, sizeof text, "%.2f s", seconds);
  else std::snprintf(text, sizeof text, "%.1f ms", 1e3 * seconds);
  return text;
}

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      out += i + 1 < row.size() ? row[i] + std::string(widths[i] - row[i].size() + 2, ' ') : row[i];
    out += '\n';
  }
  return out;
}

std::pair<std::string, std::string> name_and_value(const std::string& text, std::string_view option) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UsageError(std::string(option) + " takes NAME=VALUE, got \"" + text + "\"");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void answer(std::string_view text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw std::runtime_error("cannot write to standard output");
}

int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void catch_interrupt() {
  for (const int one : {SIGINT, SIGTERM}) std::signal(one, on_interrupt);
}
bool interrupted() { return interrupt_came != 0; }

InterruptWatch::InterruptWatch() {
  interrupt_came = 0;
  std::signal(SIGINT, [](int) { interrupt_came = 1; });
}
InterruptWatch::~InterruptWatch() {
  std::signal(SIGINT, SIG_DFL);
  interrupt_came = 0;
}

}  // namespace plait::cli

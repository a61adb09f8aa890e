#pragma once
// What the library has to say waits here until the host pulls it: nothing is ever printed.
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

namespace plait {

class LogFile;

enum class LogLevel : int32_t { debug = 0, info = 1, warning = 2 };

/// Bounded: when nobody pulls, the oldest lines are dropped and counted. Thread-safe.
class Log {
 public:
  static constexpr size_t capacity = 1024;

  Log();
  ~Log();
  /// From now on lines go to a file in `directory`, too (see LogFile). Before the log is shared with other threads.
  void keep_file(std::string directory);
  void write(LogLevel level, std::string text);
  /// False when there is nothing to read.
  bool next(LogLevel& level, std::string& text);

 private:
  struct Line {
    LogLevel level;
    std::string text;
  };
  std::mutex mutex_;
  void add(LogLevel level, std::string text);

  std::deque<Line> lines_;
  int64_t dropped_ = 0;
  std::unique_ptr<LogFile> file_;  ///< last: its end may still add a line
};

}  // namespace plait

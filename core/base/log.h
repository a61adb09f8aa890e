#pragma once
// The log: a queue that the host reads. The library never prints.
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

namespace plait {

class LogFile;

enum class LogLevel : int32_t { debug = 0, info = 1, warning = 2 };

/// Bounded: when full, the oldest lines are dropped and counted. Thread-safe.
class Log {
 public:
  static constexpr size_t capacity = 1024;

  Log();
  ~Log();
  /// Also writes later lines to a file in `directory` (see LogFile). Call before sharing the log with other threads.
  void keep_file(std::string directory);
  void write(LogLevel level, std::string text);
  /// Takes the oldest line; false if empty.
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

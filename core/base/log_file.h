#pragma once
// A rotating log file.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace plait {

/// Appends lines to DIRECTORY/plait-PID.log on its own thread, so writers never wait for a disk. Logs of one process
/// may share the file, processes may share the directory. At `limit` bytes the file replaces plait-PID.old.log; lines
/// are dropped when `waiting_limit` are queued; of ended processes the newest `files_kept` files are kept.
/// Thread-safe.
class LogFile {
 public:
  static constexpr int64_t limit = 1 << 20;
  static constexpr size_t waiting_limit = 1024, files_kept = 32;

  /// Creates the directory if missing. A failure, now or later, stops the writing and is reported to `complain` once,
  /// on the file's thread; it is not thrown.
  LogFile(std::string directory, std::function<void(std::string)> complain);
  /// Writes the queued lines.
  ~LogFile();

  /// Queues `line`, prefixed with the time (UTC).
  void write(std::string_view line);

 private:
  void loop();
  void append(const std::string& text);
  void open();
  void remove_old() const;

  const std::string directory_;
  const std::function<void(std::string)> complain_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::string> waiting_;
  int64_t dropped_ = 0;
  bool stopping_ = false, failed_ = false;
  int file_ = -1;  ///< the file's thread only
  std::thread thread_;
};

}  // namespace plait

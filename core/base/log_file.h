#pragma once
// Log lines in a file, for hosts that look at them afterwards.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace plait {

/// Appends lines to DIRECTORY/plait-PID.log, on a thread of its own: whoever writes never waits for a disk. Several
/// logs of a process may share the file, and a directory may have many processes'. It stays small: a file of `limit`
/// bytes becomes plait-PID.old.log in the place of an earlier one, lines are dropped where `waiting_limit` wait, and of
/// ended processes the newest `files_kept` files stay. Thread-safe.
class LogFile {
 public:
  static constexpr int64_t limit = 1 << 20;
  static constexpr size_t waiting_limit = 1024, files_kept = 32;

  /// The directory is made if absent. What goes wrong, now or later, ends the writing, and is said to `complain` once,
  /// on the thread of the file; it is no error.
  LogFile(std::string directory, std::function<void(std::string)> complain);
  /// Writes what waits.
  ~LogFile();

  /// `line` becomes one line of the file, with the time (UTC) before it.
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
  int file_ = -1;  ///< the thread's alone
  std::thread thread_;
};

}  // namespace plait

#pragma once
// Crash-safe files: written and synced before they get their final name.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait {

/// A file being written. Not thread-safe. All methods throw Error(io) with the path, the system's message and how
/// much was written.
class FileWriter {
 public:
  /// Truncate or append to an existing file; `whole`: the file gets its name by finish(), which replaces one of that name, and until then
  /// is a draft, which the destructor removes. What is no regular file, as a pipe, is written to in any case.
  enum class At { start, end, whole };
  explicit FileWriter(std::string path, At at = At::start);
  ~FileWriter();  ///< without finish() the file keeps what was written, unless it is a draft
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Syncs the file (fsync) and closes it. A new file is durable once its directory is synced too.
  void finish();

 private:
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_, draft_;  ///< draft_: "" if it has its name
  int fd_ = -1;
  int64_t written_ = 0;
};

/// Makes created, renamed and removed names of a directory durable. Throws Error(io).
void sync_directory(const std::string& path);

/// Renames a file or directory atomically, replacing a file of that name. Durable once the directory is synced.
/// Throws Error(io).
void rename_path(const std::string& from, const std::string& to);

}  // namespace plait

#pragma once
// Files that survive a crash: written, synced, and only then known by the name under which they are looked for.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait {

/// A file that is being written. For one thread at a time. Everything throws Error(io), naming the path: what the operating
/// system said, and how much was written before.
class FileWriter {
 public:
  enum class At { start, end };  ///< an earlier file of that name is emptied, or goes on
  explicit FileWriter(std::string path, At at = At::start);
  ~FileWriter();  ///< without finish() the file stays as far as it came
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Returns once it is on the disk (fsync), and closes it. A file that was made is durable when its directory is
  /// synced, too.
  void finish();

 private:
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_;
  int fd_ = -1;
  int64_t written_ = 0;
};

/// Makes names that were made, changed or removed in a directory durable. Throws Error(io).
void sync_directory(const std::string& path);

/// Gives a file or directory a new name in one step, in the place of a file that has it. Durable once the directory is
/// synced. Throws Error(io).
void rename_path(const std::string& from, const std::string& to);

}  // namespace plait

#pragma once
// One run at a time writes to a directory.
#include <string>

namespace plait {

/// Held as long as it lives, and no longer than its process does, however that ends. Two of one process exclude each other, too.
/// Its end removes its file, and the directory if it made that and nothing is in it.
class RunLock {
 public:
  /// Makes the directory. Throws Error: invalid_argument, naming the holder, where another has it; io. File systems that lock nothing
  /// let everyone have it.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  const std::string directory_, path_;
  bool made_directory_ = false;
  int fd_ = -1;
};

}  // namespace plait

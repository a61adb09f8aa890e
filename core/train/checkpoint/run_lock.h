#pragma once
// One run at a time writes to a directory.
#include <string>

namespace plait {

/// Held for the object's lifetime, at most until its process ends. Excludes other holders of the same process too.
/// The destructor removes the lock file, and the directory if this object created it and it is empty.
class RunLock {
 public:
  /// Creates the directory. Throws Error: invalid_argument naming the holder if it is locked; io. File systems
  /// without locks let everyone have it.
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

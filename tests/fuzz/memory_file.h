#pragma once
// An input as a file that the library opens by its name.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace plait::fuzz {

/// A file in memory that gets other contents with each input.
class MemoryFile {
 public:
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void set(const void* data, size_t size) const {
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  }

 private:
  const int fd_ = memfd_create("input", 0);
};

}  // namespace plait::fuzz

#include "core/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = "/run.lock";

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return cat("process ", getpid(), " on ", host.data());
}

/// What the holder wrote; of one that has only just come nothing yet.
std::string holder_of(int fd) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "another process";
}

}  // namespace

RunLock::RunLock(const std::string& directory) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure)
    throw Error(Code::io, cat("cannot make ", quote(directory, 4096), ": ", failure.message()),
                "check the path and its permissions");
  const std::string path = directory + lock_name;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw Error(Code::io, cat("cannot open ", quote(path, 4096), ": ", std::strerror(errno)),
                "check the path and its permissions");
  int held;  // by the kernel, for the open file: a process that is killed lets go of it
  do held = ::flock(fd_, LOCK_EX | LOCK_NB);
  while (held != 0 && errno == EINTR);
  if (held != 0 && errno == EWOULDBLOCK) {
    const std::string holder = holder_of(fd_);
    ::close(fd_);
    throw Error(Code::invalid_argument, cat(quote(directory, 4096), " has a run under way, of ", holder),
                "wait for its end, or give this one another directory");
  }
  const std::string own = this_process();
  // What does not get written is missing in a message alone.
  if (::ftruncate(fd_, 0) == 0) static_cast<void>(::pwrite(fd_, own.data(), own.size(), 0) < 0);
}

RunLock::~RunLock() { ::close(fd_); }

}  // namespace plait

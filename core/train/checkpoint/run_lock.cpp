#include "core/train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/paths.h"
#include "core/base/text.h"

namespace plait {
namespace {

Error refused(std::string_view what, const std::string& path, const std::string& why) {
  return Error(Code::io, cat("cannot ", what, " ", quote(path, 4096), ": ", why),
               "check the path and its permissions");
}

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return cat("process ", getpid(), " on ", host.data());
}

/// What the holder wrote; empty if it has not written yet.
std::string holder_of(int fd) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "another process";
}

/// Whether the open file still has that name: a previous holder removes the name.
bool has_name(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

/// Locks the open file by the kernel, which unlocks it when the process ends. False: another process has it.
bool lock(int fd) {
  int failed;
  do failed = ::flock(fd, LOCK_EX | LOCK_NB);
  while (failed && errno == EINTR);
  return !failed || errno != EWOULDBLOCK;
}

}  // namespace

RunLock::RunLock(const std::string& directory) : directory_(directory), path_(cat(directory, "/run.lock")) {
  constexpr int most_tries =
      1000;  // attempts: a run that ends removes file and directory, which others may meet
  for (int tries = 0; fd_ < 0; ++tries) {
    if (tries == most_tries) throw refused("lock", path_, "it does not stay where it is made");
    made_directory_ = make_directories(directory_) || made_directory_;
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT) continue;  // the previous holder removed the directory
    if (fd < 0) throw refused("open", path_, std::strerror(errno));
    const bool locked = lock(fd);
    if (locked && has_name(fd, path_)) {
      fd_ = fd;
      break;
    }
    const std::string holder = locked ? std::string() : holder_of(fd);
    ::close(fd);
    if (!locked)
      throw Error(Code::invalid_argument, cat(quote(directory_, 4096), " has a run under way, of ", holder),
                  "wait for its end, or give this one another directory");
  }
  const std::string own = this_process();
  // A failed write only makes messages less precise.
  if (::ftruncate(fd_, 0) == 0) static_cast<void>(::pwrite(fd_, own.data(), own.size(), 0) < 0);
}

/// Removes the directory if this run created it and left nothing in it.
RunLock::~RunLock() {
  ::unlink(path_.c_str());
  if (made_directory_) ::rmdir(directory_.c_str());  // fails if it is not empty
  ::close(fd_);
}

}  // namespace plait

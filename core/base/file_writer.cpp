#include "core/base/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/paths.h"
#include "core/base/text.h"

namespace plait {
namespace {

Error io_error(std::string_view what, const std::string& path, std::string_view then = "") {
  const int why = errno;
  const bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
  return Error(Code::io, cat("cannot ", what, " ", quote(path, 4096), then, ": ", std::strerror(why)),
               full ? "free some space on that disk, or write elsewhere" : "check the path and its permissions");
}

}  // namespace

FileWriter::FileWriter(std::string path, At at) : path_(std::move(path)) {
  if (at == At::whole) {
    const std::optional<PathKind> kind = look(path_);
    if (kind == PathKind::file) path_ = real_path(path_).value_or(path_);  // a link stays one
    if (!kind || kind == PathKind::file) draft_ = cat(path_, ".tmp-", ::getpid());
  }
  const std::string& opened = draft_.empty() ? path_ : draft_;
  fd_ = ::open(opened.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (at == At::end ? O_APPEND : O_TRUNC), 0666);
  if (fd_ < 0) fail("open");
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write to");
    written_ += wrote;
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
}

void FileWriter::finish() {
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail("sync");  // pipes cannot be synced
  // Some file systems report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0) fail("close");
  if (draft_.empty()) return;
  rename_path(draft_, path_);
  draft_.clear();
}

void FileWriter::fail(std::string_view what) const {
  throw io_error(what, path_, written_ ? cat(" after ", human_bytes(written_)) : "");
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw io_error("open", path);
  const bool synced = ::fsync(fd) == 0;
  const int why = errno;
  ::close(fd);
  errno = why;
  if (!synced) throw io_error("sync", path);
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw io_error(cat("rename ", quote(from, 4096), " to"), to);
}

}  // namespace plait

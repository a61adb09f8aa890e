#include "core/comm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr std::string_view file_name = "plait-ranks";

Error refused(std::string_view what, Code code = Code::io) {
  return Error(code, cat("ranks cannot share memory: ", what, ": ", std::strerror(errno)));
}

struct flock record(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Mapping::Mapping(int file, int64_t bytes) : file_(file), bytes_(bytes) {
  const int flags = MAP_NORESERVE | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  void* data = mmap(nullptr, bytes + sizeof(Handle::mark), PROT_READ | PROT_WRITE, flags, file, 0);
  if (data != MAP_FAILED) {
    data_ = static_cast<std::byte*>(data);
    return;
  }
  Error error = refused(cat(human_bytes(bytes), " of address space"), Code::out_of_memory);
  if (file >= 0) close(file);
  throw error;
}

Mapping::~Mapping() {
  munmap(data_, bytes_ + sizeof(Handle::mark));
  if (file_ >= 0) close(file_);
}

std::shared_ptr<Mapping> Mapping::within_process(int64_t bytes) {
  return std::shared_ptr<Mapping>(new Mapping(-1, bytes));
}

std::shared_ptr<Mapping> Mapping::between_processes(int64_t bytes) {
  uint64_t mark[2];
  if (getrandom(mark, sizeof mark, 0) != sizeof mark) throw refused("getrandom");
  const int file = memfd_create(file_name.data(), MFD_CLOEXEC);
  if (file < 0) throw refused("memfd_create");
  if (ftruncate(file, bytes + static_cast<int64_t>(sizeof mark)) != 0) {
    Error error = refused(cat("a file of ", human_bytes(bytes)));
    close(file);
    throw error;
  }
  std::shared_ptr<Mapping> mapping(new Mapping(file, bytes));
  std::memcpy(mapping->data_ + bytes, mark, sizeof mark);
  return mapping;
}

Mapping::Handle Mapping::handle() const {
  Handle handle;
  handle.bytes = bytes_;
  if (is_within_process()) {
    handle.object = reinterpret_cast<uint64_t>(this);
  } else {
    handle.process = getpid();
    handle.descriptor = file_;
    std::memcpy(handle.mark, data_ + bytes_, sizeof handle.mark);
  }
  return handle;
}

std::shared_ptr<Mapping> Mapping::attach(const Handle& handle) {
  if (handle.object) return reinterpret_cast<Mapping*>(handle.object)->shared_from_this();
  // Process ids may belong to another namespace: check the link's text before opening anything.
  const std::string path = cat("/proc/", handle.process, "/fd/", handle.descriptor);
  const std::string wanted = cat("/memfd:", file_name);
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof target - 1) < 0) throw refused(path);
  if (std::string_view(target).substr(0, wanted.size()) != wanted)
    throw Error(Code::io, cat(path, " is not a rank's"));
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw refused(path);
  if (lseek(file, 0, SEEK_END) != handle.bytes + static_cast<int64_t>(sizeof handle.mark)) {
    close(file);
    throw Error(Code::io, cat(path, " has another size than the rank's that was meant"));
  }
  std::shared_ptr<Mapping> mapping(new Mapping(file, handle.bytes));
  if (std::memcmp(mapping->data_ + handle.bytes, handle.mark, sizeof handle.mark) != 0)
    throw Error(Code::io, cat(path, " is another world's"));
  return mapping;
}

void Mapping::hold(int rank) const {
  if (is_within_process()) return;
  struct flock lock = record(rank);
  if (fcntl(file_, F_SETLK, &lock) != 0) throw refused("a record lock");
}

bool Mapping::is_held(int rank) const {
  struct flock lock = record(rank);
  return fcntl(file_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace plait

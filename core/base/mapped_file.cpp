#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class MappedBlob : public Blob {
 public:
  MappedBlob(void* address, int64_t size) {
    data_ = static_cast<std::byte*>(address);
    size_ = size;
  }
  ~MappedBlob() override {
    if (size_) munmap(data_, static_cast<size_t>(size_));
  }
  void drop(int64_t offset, int64_t bytes) const override {
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    if (begin < end) madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  }
};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_open(const std::string& path) {
  int why = errno;
  Code code = why == ENOENT || why == ENOTDIR ? Code::not_found : Code::io;
  throw Error(code, cat("cannot open ", quote(path), ": ", std::strerror(why)), "check the path and its permissions");
}

std::shared_ptr<Blob> map_open_file(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) fail_open(path);
  if (!S_ISREG(info.st_mode)) throw Error(Code::io, cat(quote(path), " is not a regular file"));
  if (info.st_size == 0) return std::make_shared<MappedBlob>(nullptr, 0);
  void* address = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED)
    throw Error(Code::io,
                cat("cannot map ", quote(path), " (", human_bytes(info.st_size), "): ", std::strerror(errno)));
  return std::make_shared<MappedBlob>(address, info.st_size);
}

bool lies_under(const fs::path& file, const fs::path& directory) {
  auto relative = file.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

std::shared_ptr<Blob> map_file(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_open(path);
  return map_open_file(file.get(), path);
}

std::shared_ptr<Blob> map_beside(const std::string& model_path, const std::string& location) {
  fs::path relative(location);
  auto refuse = [&](std::string_view why) {
    return Error(Code::bad_model, cat("external data location ", quote(location), " ", why),
                 "external data must lie beside the model file or below it");
  };
  if (location.empty() || location.find('\0') != std::string::npos) throw refuse("is empty or holds a NUL");
  if (relative.is_absolute() || location.find('\\') != std::string::npos)
    throw refuse("is not a relative POSIX path");
  for (const auto& part : relative)
    if (part == "..") throw refuse("leaves the model's directory");

  std::error_code error;
  fs::path directory = fs::canonical(fs::absolute(model_path).parent_path(), error);
  if (error) throw Error(Code::not_found, cat("no directory holds ", quote(model_path)));
  fs::path target = fs::canonical(directory / relative, error);
  if (error)
    throw Error(Code::not_found,
                cat("external data file ", quote((directory / relative).string()), " does not exist"),
                "copy it beside the model file");
  fs::path real_model = fs::canonical(model_path, error);
  bool inside = lies_under(target, directory) || (!error && lies_under(target, real_model.parent_path()));
  if (!inside) throw refuse("resolves to a file outside the model's directory");
  // The canonical path holds no links; O_NOFOLLOW refuses one that is put there in between. Opening a pipe must not wait for
  // who writes to it: it is no file.
  Descriptor file(open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) fail_open(target.string());
  return map_open_file(file.get(), target.string());
}

std::string read_text_file(const std::string& path, int64_t limit) {
  auto blob = map_file(path);
  if (blob->size() > limit) throw Error(Code::bad_model, cat(quote(path), " is larger than ", human_bytes(limit)));
  return std::string(reinterpret_cast<const char*>(blob->data()), static_cast<size_t>(blob->size()));
}

}  // namespace plait

#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/paths.h"
#include "core/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// A regular file as it was when it was opened.
struct OpenFile {
  Descriptor descriptor;
  std::string path;
  struct stat info;

  int64_t size() const { return info.st_size; }

  /// Throws Error(io) when it was shortened, or written to.
  void check() const {
    struct stat now;
    if (fstat(descriptor.get(), &now) != 0) throw Error(Code::io, cat("cannot look at ", quote(path)));
    const bool written = now.st_mtim.tv_sec != info.st_mtim.tv_sec || now.st_mtim.tv_nsec != info.st_mtim.tv_nsec;
    if (now.st_size == info.st_size && !written) return;
    throw Error(
        Code::io,
        cat(quote(path), now.st_size < info.st_size ? " was shortened to " : " was written to, and has now ",
            now.st_size, " bytes; it had ", info.st_size, " when it was opened"),
        "write the new file under another name and rename it, or keep a copy in memory (option weights=copied)");
  }
};

class MappedBlob : public Blob {
 public:
  MappedBlob(void* address, OpenFile file) : file_(std::move(file)) {
    data_ = static_cast<std::byte*>(address);
    size_ = file_.size();
  }
  ~MappedBlob() override {
    if (size_) munmap(data_, static_cast<size_t>(size_));
  }
  void drop(int64_t offset, int64_t bytes) const override {
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    if (begin < end) madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  }
  void check() const override { file_.check(); }

 private:
  OpenFile file_;
};

[[noreturn]] void fail_open(const std::string& path) {
  int why = errno;
  Code code = why == ENOENT || why == ENOTDIR ? Code::not_found : Code::io;
  throw Error(code, cat("cannot open ", quote(path), ": ", std::strerror(why)), "check the path and its permissions");
}

/// Opening a pipe must not wait for who writes to it: it is no file.
OpenFile open_regular(const std::string& path, int flags = 0) {
  OpenFile out{Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags)), path, {}};
  if (out.descriptor.get() < 0 || fstat(out.descriptor.get(), &out.info) != 0) fail_open(path);
  if (!S_ISREG(out.info.st_mode)) throw Error(Code::io, cat(quote(path), " is not a regular file"));
  return out;
}

std::shared_ptr<Blob> map_open(OpenFile file) {
  if (file.size() == 0) return make_blob(0);
  void* address = mmap(nullptr, static_cast<size_t>(file.size()), PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (address == MAP_FAILED)
    throw Error(Code::io,
                cat("cannot map ", quote(file.path), " (", human_bytes(file.size()), "): ", std::strerror(errno)));
  return std::make_shared<MappedBlob>(address, std::move(file));
}

std::shared_ptr<Blob> read_open(const OpenFile& file) {
  std::shared_ptr<Blob> out = make_blob(file.size());
  for (int64_t done = 0; done < file.size();) {
    ssize_t count =
        pread(file.descriptor.get(), out->mutable_data() + done, static_cast<size_t>(file.size() - done), done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(Code::io, cat("cannot read ", quote(file.path), ": ", std::strerror(errno)));
    file.check();
    if (count == 0) throw Error(Code::io, cat(quote(file.path), " ends at byte ", done, " of ", file.size()));
    done += count;
  }
  return out;
}

bool lies_under(const fs::path& file, const fs::path& directory) {
  auto relative = file.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

OpenFile open_beside(const std::string& model_path, const std::string& location) {
  fs::path relative(location);
  auto refuse = [&](std::string_view why) {
    return Error(Code::bad_model, cat("external data location ", quote(location), " ", why),
                 "external data must be in the model file's directory or below it");
  };
  if (location.empty() || location.find('\0') != std::string::npos) throw refuse("is empty or holds a NUL");
  if (relative.is_absolute() || location.find('\\') != std::string::npos)
    throw refuse("is not a relative POSIX path");
  for (const auto& part : relative)
    if (part == "..") throw refuse("leaves the model's directory");

  const std::optional<std::string> above = real_path(fs::path(model_path).parent_path().string());
  if (!above) throw Error(Code::not_found, cat("no directory holds ", quote(model_path)));
  const fs::path directory(*above);
  const std::optional<std::string> real = real_path((directory / relative).string());
  if (!real)
    throw Error(Code::not_found,
                cat("external data file ", quote((directory / relative).string()), " does not exist"),
                "copy it next to the model file");
  const fs::path target(*real);
  const std::optional<std::string> real_model = real_path(model_path);
  const bool inside =
      lies_under(target, directory) || (real_model && lies_under(target, fs::path(*real_model).parent_path()));
  if (!inside) throw refuse("resolves to a file outside the model's directory");
  // The canonical path holds no links; O_NOFOLLOW refuses one that is put there in between.
  return open_regular(target.string(), O_NOFOLLOW);
}

}  // namespace

std::shared_ptr<Blob> map_file(const std::string& path) { return map_open(open_regular(path)); }

std::shared_ptr<Blob> read_file(const std::string& path) { return read_open(open_regular(path)); }

std::shared_ptr<Blob> map_beside(const std::string& model_path, const std::string& location) {
  return map_open(open_beside(model_path, location));
}

std::shared_ptr<Blob> read_beside(const std::string& model_path, const std::string& location) {
  return read_open(open_beside(model_path, location));
}

std::string read_text_file(const std::string& path, int64_t limit) {
  OpenFile file = open_regular(path);
  if (file.size() > limit) throw Error(Code::bad_model, cat(quote(path), " is larger than ", human_bytes(limit)));
  auto blob = read_open(file);
  return std::string(reinterpret_cast<const char*>(blob->data()), static_cast<size_t>(blob->size()));
}

}  // namespace plait

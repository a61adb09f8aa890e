#include "core/base/paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

Error refused(const char* what, const std::string& path, int why) {
  const bool no_memory = why == ENOMEM;
  return Error(no_memory ? Code::out_of_memory : Code::io, cat("cannot ", what, " ", quote(path, 4096), ": ", std::strerror(why)),
               "check the path, its permissions and its disk");
}

bool is_absent(int why) { return why == ENOENT || why == ENOTDIR; }

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

std::optional<PathKind> look(const std::string& path) {
  struct stat info {};
  int failed;
  do failed = ::stat(path.c_str(), &info);
  while (failed && errno == EINTR);
  if (failed && is_absent(errno)) return std::nullopt;
  if (failed) throw refused("look at", path, errno);
  return S_ISREG(info.st_mode) ? PathKind::file : S_ISDIR(info.st_mode) ? PathKind::directory : PathKind::other;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> out;
  const std::unique_ptr<DIR, CloseDirectory> open(::opendir(directory.empty() ? "." : directory.c_str()));
  if (!open && is_absent(errno)) return out;
  if (!open) throw refused("list", directory, errno);
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (!entry && errno) throw refused("list", directory, errno);
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.emplace_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> out(::realpath(path.empty() ? "." : path.c_str(), nullptr), &std::free);
  if (out) return out.get();
  if (is_absent(errno)) return std::nullopt;
  throw refused("look at", path, errno);
}

std::optional<std::string> link_target(const std::string& path) {
  std::string out(4096, '\0');
  const ssize_t size = ::readlink(path.c_str(), out.data(), out.size());
  if (size < 0 && (is_absent(errno) || errno == EINVAL)) return std::nullopt;
  if (size < 0) throw refused("read the link", path, errno);
  out.resize(static_cast<size_t>(size));
  return out;
}

/// Makes it and those above it; 0, or why not. EEXIST: it was there.
static int made(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return 0;
  if (errno != ENOENT) return errno;
  std::string above = path;
  while (above.size() > 1 && above.back() == '/') above.pop_back();
  const size_t slash = above.rfind('/');
  if (slash == std::string::npos || slash == 0) return ENOENT;
  const int why = made(above.substr(0, slash));
  if (why != 0 && why != EEXIST) return why;
  return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno;
}

bool make_directories(const std::string& path) {
  if (path.empty() || is_directory(path)) return false;
  const int why = made(path);
  if (why == 0) return true;
  if (why == EEXIST && is_directory(path)) return false;  // another process made it
  throw refused("make the directory", path, why == EEXIST ? ENOTDIR : why);
}

void remove_path(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || is_absent(errno)) return;
  const int why = errno;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (is_absent(errno)) return;
    throw refused("look at", path, errno);
  }
  if (!S_ISDIR(info.st_mode)) throw refused("remove", path, why);
  for (const std::string& name : names_in(path)) remove_path(cat(path, "/", name));
  if (::rmdir(path.c_str()) != 0 && !is_absent(errno)) throw refused("remove", path, errno);
}

}  // namespace plait

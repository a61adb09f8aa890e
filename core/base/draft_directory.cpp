#include "core/base/draft_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr const char* mark = ".tmp-";
/// Within a draft: the name that is published last, and the names that the target did not have before.
constexpr const char* journal = ".publishing";

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash ? path.substr(0, slash) : "/", path.substr(slash + 1)};
}

/// Locked until the process ends, which tells a draft in use from one that was left; -1: another process has it, or it is gone.
int locked(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

DraftDirectory::DraftDirectory(std::string target)
    : target_(without_slash(std::move(target))), within_(is_directory(target_)) {
  remove_left();
  make();
}

DraftDirectory::~DraftDirectory() {
  try {
    if (!path_.empty()) remove_path(path_);
  } catch (...) {  // the next draft of this target removes it
  }
  if (lock_ >= 0) ::close(lock_);
}

void DraftDirectory::make() {
  if (!within_) make_directories(split_path(target_).first);
  const std::string begin = within_ ? cat(target_, "/", mark, ::getpid()) : cat(target_, mark, ::getpid());
  std::string path = begin;
  for (int count = 1; ::mkdir(path.c_str(), 0777) != 0; ++count) {
    if (errno != EEXIST)
      throw Error(Code::io, cat("cannot make the directory ", quote(path, 4096), ": ", std::strerror(errno)),
                  "check the path and its permissions");
    path = cat(begin, "-", count);
  }
  path_ = std::move(path);
  lock_ = locked(path_);
}

void DraftDirectory::remove_left() const {
  const auto [above, own] = split_path(target_);
  const std::string where = within_ ? target_ : above, begin = within_ ? mark : cat(own, mark);
  for (const std::string& name : names_in(where)) {
    if (!name.starts_with(begin)) continue;
    const std::string draft = cat(where, "/", name), list = cat(draft, "/", journal);
    const int lock = locked(draft);
    if (lock < 0) continue;
    try {
      if (exists(list)) {
        const std::string text = read_text_file(list);
        const std::vector<std::string> names = split(text, '\n');
        if (exists(cat(draft, "/", names[0])))  // it did not come to the last one
          for (size_t i = 1; i < names.size(); ++i)
            if (!names[i].empty()) remove_path(cat(target_, "/", names[i]));
      }
      remove_path(draft);
    } catch (...) {
      ::close(lock);
      throw;
    }
    ::close(lock);
  }
}

void DraftDirectory::publish(const std::string& last, Existing existing) {
  sync_directory(path_);
  if (within_) {
    move_into(last, existing);
    sync_directory(target_);
    return;
  }
  rename_path(path_, target_);
  path_.clear();
  sync_directory(split_path(target_).first);
}

void DraftDirectory::move_into(const std::string& last, Existing existing) {
  const auto from = [&](const std::string& name) { return cat(path_, "/", name); };
  const auto to = [&](const std::string& name) { return cat(target_, "/", name); };
  std::vector<std::string> names, fresh;
  for (const std::string& name : names_in(path_)) {
    const bool there = exists(to(name));
    if (there && existing == Existing::kept) continue;
    if (name != last) names.push_back(name);
    if (!there) fresh.push_back(name);
  }
  FileWriter list(from(journal));
  list.write(cat(last, "\n", join(fresh, "\n")));
  list.finish();
  sync_directory(path_);
  if (existing == Existing::replaced) remove_path(to(last));  // the others are not read without it
  try {
    for (const std::string& name : names) rename_path(from(name), to(name));
    sync_directory(target_);
    rename_path(from(last), to(last));
  } catch (...) {
    for (const std::string& name : fresh) ::unlink(to(name).c_str());
    throw;
  }
}

}  // namespace plait

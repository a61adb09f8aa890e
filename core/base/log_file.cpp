#include "core/base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/base/threads.h"

namespace plait {
namespace fs = std::filesystem;
namespace {

std::string own_name(std::string_view ending) { return cat("plait-", static_cast<int64_t>(getpid()), ending); }

/// "2026-11-21T19:18:26.123Z "
std::string timestamp() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  auto seconds = static_cast<time_t>(ms / 1000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32] = "";
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S.", &parts);
  return cat(date, std::to_string(1000 + ms % 1000).substr(1), "Z ");
}

Error io_error(const std::string& what) { return Error(Code::io, cat(what, ": ", std::strerror(errno))); }

}  // namespace

LogFile::LogFile(std::string directory, std::function<void(std::string)> complain)
    : directory_(std::move(directory)), complain_(std::move(complain)), thread_(start_thread("the log's thread", [this] { loop(); })) {}

LogFile::~LogFile() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  thread_.join();
  if (file_ >= 0) ::close(file_);
}

void LogFile::write(std::string_view line) {
  std::string text = timestamp() + std::string(line);
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  }
  text += '\n';
  std::lock_guard lock(mutex_);
  if (failed_) return;
  if (waiting_.size() == waiting_limit) {
    waiting_.pop_front();
    ++dropped_;
  }
  waiting_.push_back(std::move(text));
  work_.notify_all();
}

void LogFile::loop() {
  try {
    make_directories(directory_);
    open();
    remove_old();
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::string text;
      if (int64_t lost = std::exchange(dropped_, 0)) text = cat(timestamp(), lost, " lines were dropped here\n");
      for (const std::string& line : std::exchange(waiting_, {})) text += line;
      lock.unlock();
      append(text);
      lock.lock();
    }
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex_);
    failed_ = true;
    waiting_.clear();
    try {
      complain_(cat("no log file is written: ", error.what()));
    } catch (...) {  // nor is there memory for the complaint
    }
  }
}

void LogFile::open() {
  if (file_ >= 0) ::close(file_);
  std::string path = (fs::path(directory_) / own_name(".log")).string();
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file_ < 0) throw io_error(cat("cannot open ", quote(path)));
}

/// Another log of this process may have rotated a full file: continues with the new one.
void LogFile::append(const std::string& text) {
  struct stat now {};
  if (::fstat(file_, &now) == 0 && now.st_size >= limit) {
    fs::path path = fs::path(directory_) / own_name(".log");
    struct stat named {};
    bool same = ::stat(path.c_str(), &named) == 0 && named.st_ino == now.st_ino && named.st_dev == now.st_dev;
    if (same && ::rename(path.c_str(), (fs::path(directory_) / own_name(".old.log")).c_str()) != 0)
      throw io_error(cat("cannot rename ", quote(path.string())));
    open();
  }
  for (size_t done = 0; done < text.size();) {
    ssize_t wrote = ::write(file_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw io_error(cat("cannot write to ", quote(directory_)));
    done += static_cast<size_t>(wrote);
  }
}

/// Removes files of other processes beyond `files_kept`, oldest first.
void LogFile::remove_old() const {
  std::vector<std::pair<int64_t, std::string>> files;
  for (const std::string& name : names_in(directory_)) {
    bool ours = name == own_name(".log") || name == own_name(".old.log");
    if (ours || !name.starts_with("plait-") || !name.ends_with(".log")) continue;
    std::string path = cat(directory_, "/", name);
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) continue;  // another process removed it; what cannot be looked at stays
    files.emplace_back(int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, std::move(path));
  }
  std::sort(files.rbegin(), files.rend());
  for (size_t i = files_kept - 1; i < files.size(); ++i) ::unlink(files[i].second.c_str());
}

}  // namespace plait

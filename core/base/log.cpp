#include "core/base/log.h"

#include <utility>

#include "core/base/log_file.h"
#include "core/base/text.h"

namespace plait {

Log::Log() = default;
Log::~Log() = default;

void Log::keep_file(std::string directory) {
  file_ = std::make_unique<LogFile>(std::move(directory),
                                    [this](std::string failure) { add(LogLevel::warning, std::move(failure)); });
}

void Log::write(LogLevel level, std::string text) {
  constexpr std::string_view names[] = {"debug ", "info ", "warning "};
  if (file_) file_->write(cat(names[static_cast<size_t>(level)], text));
  add(level, std::move(text));
}

void Log::add(LogLevel level, std::string text) {
  std::lock_guard lock(mutex_);
  if (lines_.size() == capacity) {
    lines_.pop_front();
    ++dropped_;
  }
  lines_.push_back({level, std::move(text)});
}

bool Log::next(LogLevel& level, std::string& text) {
  std::lock_guard lock(mutex_);
  if (dropped_) {
    level = LogLevel::warning;
    text = cat(std::exchange(dropped_, 0), " older log lines were dropped");
    return true;
  }
  if (lines_.empty()) return false;
  level = lines_.front().level;
  text = std::move(lines_.front().text);
  lines_.pop_front();
  return true;
}

}  // namespace plait

#include "core/base/log.h"

#include <utility>

#include "core/base/text.h"

namespace plait {

void Log::write(LogLevel level, std::string text) {
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

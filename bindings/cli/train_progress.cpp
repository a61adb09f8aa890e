#include "bindings/cli/train_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

std::string formatted(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

/// "12 s", "3:21", "2:03:21".
std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::min(seconds, 1e9));
  char text[64];
  if (whole < 60) std::snprintf(text, sizeof text, "%lld s", whole);
  else if (whole < 3600) std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  else std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

std::string bar(const plait_step& step) {
  constexpr int64_t cells = 20;
  const int64_t full = std::min(cells, step.step * cells / step.steps);
  std::string out(static_cast<size_t>(full), '=');
  if (full < cells) out += '>';
  out.resize(static_cast<size_t>(cells), ' ');
  return " [" + out + "]";
}

/// Columns of stderr's terminal; no limit if unknown.
size_t columns_of_terminal() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : std::string::npos;
}

}  // namespace

std::string progress_line(const plait_step& step, size_t columns) {
  const std::string begin =
      "step " + std::to_string(step.step) + (step.steps > 0 ? "/" + std::to_string(step.steps) : "");
  std::string out = " loss " + (std::isfinite(step.loss) ? formatted("%.4f", step.loss) : "-");
  if (std::isfinite(step.evaluation_loss))
    out += ", held out " + formatted("%.4f", step.evaluation_loss) + " (perplexity " +
           formatted("%.4g", std::exp(step.evaluation_loss)) + ")";
  out += ", rate " + formatted("%.2e", step.learning_rate) + ", " + rounded(step.tokens_per_second, "tokens/s");
  if (std::isfinite(step.seconds_left)) out += ", " + time_text(step.seconds_left) + " left";
  if (std::isfinite(step.bubble)) out += ", bubble " + formatted("%.0f %%", 100 * step.bubble);
  out += ", " + rounded(static_cast<double>(step.native_bytes), "B");
  if (step.saved) out += ", saved";
  const std::string drawn = step.steps > 0 ? bar(step) : "";
  out = begin + (begin.size() + drawn.size() + out.size() <= columns ? drawn : "") + out;
  return out.substr(0, columns);
}

TrainProgress::TrainProgress() : terminal_(isatty(STDERR_FILENO) == 1) {}

TrainProgress::~TrainProgress() {
  if (pending_) print(last_);
  if (any_ && terminal_) std::fputc('\n', stderr);
}

void TrainProgress::show(const plait_step& step) {
  constexpr std::chrono::milliseconds of_terminal{100}, of_file{5000};
  last_ = step;
  // Rare events get a line of their own.
  const bool special = std::isfinite(step.evaluation_loss) || !any_;
  pending_ = !special && Clock::now() - shown_ < (terminal_ ? of_terminal : of_file);
  if (!pending_) print(step);
}

void TrainProgress::print(const plait_step& step) {
  const bool stays = std::isfinite(step.evaluation_loss);
  // An overwritten line must not reach the terminal's edge, where it would wrap.
  std::string line = progress_line(step, terminal_ && !stays ? columns_of_terminal() - 1 : std::string::npos);
  const size_t length = line.size();
  if (terminal_) {
    line.resize(std::max(length, width_), ' ');
    std::fprintf(stderr, "\r%s%s", line.c_str(), stays ? "\n" : "");
    width_ = stays ? 0 : length;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
  any_ = true;
  pending_ = false;
  shown_ = Clock::now();
}

}  // namespace plait::cli

#include "serving/http/base/meter.h"

#include <algorithm>
#include <cstdio>

namespace plait::http {
namespace {

void head(std::string& out, const std::string& name, const char* type, const std::string& help) {
  out.append("# HELP ")
      .append(name)
      .append(" ")
      .append(help)
      .append("\n# TYPE ")
      .append(name)
      .append(" ")
      .append(type)
      .append("\n");
}

void line(std::string& out, const std::string& name, const std::string& labels, double value) {
  char number[32];
  std::snprintf(number, sizeof number, "%.17g", value);
  out += name;
  if (!labels.empty()) out.append("{").append(labels).append("}");
  out.append(" ").append(number).append("\n");
}

}  // namespace

void write_metric(std::string& out, const char* name, const char* type, const char* help, double value,
                  const std::string& labels) {
  if (*type) head(out, name, type, help);
  line(out, name, labels, value);
}

void write_histogram(std::string& out, const std::string& name, const char* type, const std::string& help,
                     std::span<const double> bounds, std::span<const int64_t> counts, double sum,
                     const std::string& labels) {
  if (*type) head(out, name, type, help);
  int64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    char bound[32] = "+Inf";
    if (i < bounds.size()) std::snprintf(bound, sizeof bound, "%g", bounds[i]);
    line(out, name + "_bucket", labels + (labels.empty() ? "" : ",") + "le=\"" + bound + "\"",
         static_cast<double>(below));
  }
  line(out, name + "_sum", labels, sum);
  line(out, name + "_count", labels, static_cast<double>(below));
}

void Meter::Histogram::add(double seconds) {
  const auto* bound = std::lower_bound(bounds.begin(), bounds.end(), seconds);
  ++counts[static_cast<size_t>(bound - bounds.begin())];
  sum += seconds;
}

void Meter::Histogram::write(const char* name, const char* help, std::string& out) const {
  write_histogram(out, name, "histogram", help, bounds, counts, sum);
}

void Meter::came() noexcept {
  std::lock_guard lock(mutex_);
  ++came_;
}

void Meter::answered() noexcept {
  std::lock_guard lock(mutex_);
  ++answered_;
}

void Meter::refused(int32_t status) noexcept {
  std::lock_guard lock(mutex_);
  ++refused_[static_cast<size_t>(std::clamp<int32_t>(status, 0, static_cast<int32_t>(refused_.size()) - 1))];
}

void Meter::cancelled() noexcept {
  std::lock_guard lock(mutex_);
  ++cancelled_;
}

void Meter::finished(const std::string& reason) {
  std::lock_guard lock(mutex_);
  ++finished_[reason];
}

void Meter::used(const plait_usage& usage) {
  std::lock_guard lock(mutex_);
  prompt_tokens_ += usage.prompt_tokens;
  cached_tokens_ += usage.cached_tokens;
  if (usage.first_token_s > 0) first_token_.add(usage.first_token_s);
  queued_.add(usage.queued_s);
  prefill_.add(usage.prefill_s);
  total_.add(usage.total_s);
  const auto now = std::chrono::steady_clock::now();
  // Without the time in which there was nothing to do.
  const double since = std::min(std::chrono::duration<double>(now - ended_).count(), usage.total_s);
  constexpr double weight = 1.0 / 16;
  between_ends_ = between_ends_ > 0 ? between_ends_ + weight * (since - between_ends_) : since;
  ended_ = now;
}

int64_t Meter::retry_after_ms() {
  using Seconds = std::chrono::duration<double>;
  constexpr double least = 0.1, most = 60, unknown = 1;
  std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  const double ahead = std::max(0.0, Seconds(promised_ - now).count());
  const double wait = std::clamp(ahead + (between_ends_ > 0 ? between_ends_ : unknown), least, most);
  promised_ = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(wait));
  return static_cast<int64_t>(1000 * wait);
}

void Meter::token(double seconds) {
  std::lock_guard lock(mutex_);
  ++new_tokens_;
  if (seconds >= 0) between_tokens_.add(seconds);
}

std::string Meter::text() const {
  std::lock_guard lock(mutex_);
  std::string out;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  head(out, "plait_request_success_total", "counter", "Samples that ended, by reason.");
  for (const auto& [reason, count] : finished_)
    line(out, "plait_request_success_total", "finished_reason=\"" + reason + "\"", number(count));
  int64_t open = came_ - answered_ - cancelled_;
  for (const int64_t count : refused_) open -= count;
  write_metric(out, "plait_requests_total", "counter",
               "Calls that came. Each is answered, refused or cancelled in the end, and open until then.", number(came_));
  write_metric(out, "plait_requests_answered_total", "counter", "Calls whose answer was sent in full.", number(answered_));
  write_metric(out, "plait_requests_open", "gauge", "Calls that are not over, with the one that reads this.", number(open));
  head(out, "plait_request_refused_total", "counter", "Answers with an error, by HTTP status.");
  for (size_t status = 0; status < refused_.size(); ++status)
    if (refused_[status])
      line(out, "plait_request_refused_total", "status=\"" + std::to_string(status) + "\"", number(refused_[status]));
  write_metric(out, "plait_request_cancelled_total", "counter", "Clients that left before their answer was complete.",
               number(cancelled_));
  write_metric(out, "plait_prompt_tokens_total", "counter", "Tokens of prompts.", number(prompt_tokens_));
  write_metric(out, "plait_cached_prompt_tokens_total", "counter", "Of these, found in the cache.",
               number(cached_tokens_));
  write_metric(out, "plait_generation_tokens_total", "counter", "New tokens.", number(new_tokens_));
  first_token_.write("plait_time_to_first_token_seconds", "From submission.", out);
  between_tokens_.write("plait_inter_token_latency_seconds", "Between two tokens of an answer, as they are sent.",
                        out);
  total_.write("plait_e2e_request_latency_seconds", "From submission to the end.", out);
  queued_.write("plait_request_queue_time_seconds", "In the queue.", out);
  prefill_.write("plait_request_prefill_time_seconds", "In steps that process the prompt.", out);
  return out;
}

}  // namespace plait::http

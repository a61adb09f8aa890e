#pragma once
// What the server counts, in Prometheus' text form (prometheus.io, "Exposition formats").
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "bindings/c/plait.h"

namespace plait::http {

/// Thread-safe.
class Meter {
 public:
  // Each call that comes is answered, refused or cancelled in the end, and is one of those that are open until then.
  void came() noexcept;
  void answered() noexcept;
  void refused(int32_t status) noexcept;
  /// A client left before its answer was complete.
  void cancelled() noexcept;
  /// A sample's end: "stop", "length", ...
  void finished(const std::string& reason);
  /// A request's end.
  void used(const plait_usage& usage);
  /// A token was sent, so long after the one before it; negative: it is the first.
  void token(double seconds);

  /// When a place in a full queue should be free for one more caller. Requests end at a measured rate, and each caller that was refused
  /// is told a place of its own: 0.1 to 60 s, and 1 s until a request has ended.
  int64_t retry_after_ms();

  std::string text() const;

 private:
  struct Histogram {
    static constexpr std::array bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                          0.5,   1.0,    2.5,   5.0,  10.0,  25.0, 50.0, 100.0};
    std::array<int64_t, bounds.size() + 1> counts{};
    double sum = 0;
    void add(double seconds);
    void write(const char* name, const char* help, std::string& out) const;
  };

  mutable std::mutex mutex_;
  std::array<int64_t, 600> refused_{};  ///< by status
  std::map<std::string, int64_t> finished_;
  int64_t came_ = 0, answered_ = 0, cancelled_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0, new_tokens_ = 0;
  std::chrono::steady_clock::time_point ended_,
      promised_;             ///< the last request; the last place that a caller was told
  double between_ends_ = 0;  ///< seconds, of requests while there are some; 0: not known
  Histogram first_token_, between_tokens_, total_, queued_, prefill_;
};

/// `counts` has one more than `bounds`: of the values up to each bound and above the one before, then of those above all. "# HELP" and
/// "# TYPE" as below.
void write_histogram(std::string& out, const std::string& name, const char* type, const std::string& help,
                     std::span<const double> bounds, std::span<const int64_t> counts, double sum,
                     const std::string& labels = {});

/// "# HELP" and "# TYPE", unless `type` is "", and one value.
void write_metric(std::string& out, const char* name, const char* type, const char* help, double value,
                  const std::string& labels = {});

}  // namespace plait::http

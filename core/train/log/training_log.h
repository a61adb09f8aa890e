#pragma once
// Logs of a run: JSON lines for scripts, event files for TensorBoard.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plait {

/// One step. Unknown numbers are NaN and are not written.
struct StepReport {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  int64_t step = 0;       ///< updates done, including this one
  double loss = unknown;  ///< nats per token, of the step's own tokens
  double learning_rate = unknown;
  double gradient_norm = unknown;  ///< before clipping
  double tokens_per_second = unknown;
  double bubble = unknown;  ///< share of the time of a pipeline's ranks in which they ran no section
  double memory_bytes = unknown;
  double evaluation_loss = unknown;  ///< of the evaluation set, at the steps that evaluate
  // Not kept in the log:
  int64_t tokens = 0;  ///< tokens of the step, without padding
  bool saved = false;  ///< a checkpoint was started after it

  /// As a JSON object in one line, and back. `parse` returns nullopt for any other text, e.g. a line cut off by a
  /// crash.
  std::string json() const;
  static std::optional<StepReport> parse(std::string_view json);
};

/// Reports of a JSON lines file, in order; empty if there is no such file. Throws Error(io).
std::vector<StepReport> read_training_log(const std::string& path);

class EventFile;

/// Writes DIRECTORY/log.jsonl and DIRECTORY/events.out.tfevents.*. Not thread-safe. Throws Error(io).
class TrainingLog {
 public:
  /// Creates the directory if absent. A run resumed after `step` drops later reports, in the log and for TensorBoard.
  explicit TrainingLog(std::string directory, int64_t step = 0);
  ~TrainingLog();

  void write(const StepReport& report);
  /// Of the whole run, including those before it was resumed.
  const std::vector<StepReport>& reports() const { return reports_; }

 private:
  struct Files;
  std::unique_ptr<Files> files_;
  std::vector<StepReport> reports_;
};

}  // namespace plait

#pragma once
// What a run reports as it goes: JSON lines for scripts, event files for TensorBoard.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plait {

/// One step. A number that is not known is NaN, and is written nowhere.
struct StepReport {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  int64_t step = 0;       ///< updates done, this one included
  double loss = unknown;  ///< nats a token, of the step's own tokens
  double learning_rate = unknown;
  double gradient_norm = unknown;  ///< before clipping
  double tokens_per_second = unknown;
  double memory_bytes = unknown;
  double evaluation_loss = unknown;  ///< of the evaluation set, at the steps where it was asked for
  // What the log does not keep.
  int64_t tokens = 0;  ///< that the step was made of, without padding
  bool saved = false;  ///< a checkpoint was begun behind it

  /// As a JSON object in one line, and back. `parse` gives nullopt for a text that is none, such as a line of which a kill
  /// has left the beginning.
  std::string json() const;
  static std::optional<StepReport> parse(std::string_view json);
};

/// The reports of a JSON lines file, in order; none if there is no such file. Throws Error(io).
std::vector<StepReport> read_training_log(const std::string& path);

class EventFile;

/// DIRECTORY/log.jsonl and DIRECTORY/events.out.tfevents.*. For one thread at a time. Everything throws Error(io).
class TrainingLog {
 public:
  /// The directory is made if absent. A run that goes on after `step` keeps the reports up to there and loses later ones,
  /// which it makes again; TensorBoard is told the same.
  explicit TrainingLog(std::string directory, int64_t step = 0);
  ~TrainingLog();

  void write(const StepReport& report);
  /// Of the whole run, those before it was taken up again included.
  const std::vector<StepReport>& reports() const { return reports_; }

 private:
  struct Files;
  std::unique_ptr<Files> files_;
  std::vector<StepReport> reports_;
};

}  // namespace plait

#include "core/train/log/training_log.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/train/log/event_file.h"
#include "core/base/file_writer.h"

namespace plait {
namespace {

struct Field {
  const char* json;
  std::string_view tensorboard;
  double StepReport::*member;
};
constexpr Field fields[] = {{"loss", "loss/train", &StepReport::loss},
                            {"evaluation_loss", "loss/evaluation", &StepReport::evaluation_loss},
                            {"learning_rate", "learning_rate", &StepReport::learning_rate},
                            {"gradient_norm", "gradient_norm", &StepReport::gradient_norm},
                            {"tokens_per_second", "tokens_per_second", &StepReport::tokens_per_second},
                            {"bubble", "bubble", &StepReport::bubble},
                            {"memory_bytes", "memory_bytes", &StepReport::memory_bytes}};

std::string made(const std::string& directory) {
  make_directories(directory);
  return directory;
}

}  // namespace

std::string StepReport::json() const {
  nlohmann::ordered_json out{{"step", step}};
  for (const Field& field : fields)
    if (std::isfinite(this->*field.member)) out[field.json] = this->*field.member;
  return out.dump();
}

std::optional<StepReport> StepReport::parse(std::string_view json) {
  const auto object = nlohmann::json::parse(json, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return std::nullopt;
  StepReport out;
  out.step = object["step"].get<int64_t>();
  for (const Field& field : fields) {
    auto found = object.find(field.json);
    if (found != object.end() && found->is_number()) out.*field.member = found->get<double>();
  }
  return out;
}

std::vector<StepReport> read_training_log(const std::string& path) {
  std::vector<StepReport> out;
  if (!exists(path)) return out;
  for (const std::string& line : split(read_text_file(path), '\n'))
    if (auto report = StepReport::parse(line)) out.push_back(*report);
  return out;
}

struct TrainingLog::Files {
  Files(const std::string& directory, const std::string& path, int64_t step)
      : lines(path, FileWriter::At::end), events(directory, step) {}
  FileWriter lines;
  EventFile events;
};

TrainingLog::TrainingLog(std::string directory, int64_t step) {
  const std::string path = made(directory) + "/log.jsonl", draft = path + ".tmp";
  reports_ = read_training_log(path);
  std::erase_if(reports_, [&](const StepReport& report) { return report.step > step; });
  FileWriter kept(draft);
  for (const StepReport& report : reports_) kept.write(report.json() + "\n");
  kept.finish();
  rename_path(draft, path);
  files_ = std::make_unique<Files>(directory, path, step);
}

TrainingLog::~TrainingLog() = default;

void TrainingLog::write(const StepReport& report) {
  reports_.push_back(report);
  files_->lines.write(report.json() + "\n");
  std::vector<std::pair<std::string_view, double>> values;
  for (const Field& field : fields)
    if (std::isfinite(report.*field.member)) values.emplace_back(field.tensorboard, report.*field.member);
  files_->events.write(report.step, values);
}

}  // namespace plait

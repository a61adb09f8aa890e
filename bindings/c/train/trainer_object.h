#pragma once
// The object of a trainer's handle.
#include "bindings/c/objects.h"
#include "core/train/trained_weights.h"
#include "core/train/training_run.h"

namespace plait::c_api {

/// The parts of a trainer, on each rank.
struct TrainerPlan {
  /// `threads`: default of the settings.
  TrainerPlan(ModelObject& model, const Settings& settings, int threads);

  TrainerOptions options;
  CompileOptions compile;
  std::shared_ptr<ThreadPool> pool;
  FileTensors begun_with;  ///< tensors of the initial checkpoint
  std::string adapters;    ///< checkpoint whose adapters are to be loaded; "": none
  Graph graph;
};

class TrainerObject {
 public:
  /// `world` may be null.
  TrainerObject(std::shared_ptr<ModelObject> model, Settings settings, std::shared_ptr<WorldObject> world = nullptr);

  /// Waits until it is loaded; throws the error that ended the loading.
  TrainingRun& run() const { return *loading_.get(); }
  bool wait(int64_t timeout_ms) const;
  double progress() const { return loading_.progress(); }
  void cancel();

  ModelObject& model() const { return *model_; }
  const TrainerOptions& options() const { return options_; }     ///< once loaded
  ThreadPool& pool() const { return *pool_; }                    ///< once loaded; for callers that hold the trainer
  const FileTensors& begun_with() const { return begun_with_; }  ///< of the initial checkpoint
  /// Reads a file to train or evaluate on.
  Dataset read_data(const std::string& path, LoadProgress* progress = nullptr) const;

 private:
  std::shared_ptr<TrainingRun> load(LoadProgress& progress);

  std::shared_ptr<WorldObject> world_;
  std::shared_ptr<ModelObject> model_;
  Settings settings_;
  TrainerOptions options_;
  FileTensors begun_with_;
  std::shared_ptr<ThreadPool> pool_;
  Loading<std::shared_ptr<TrainingRun>> loading_;  ///< last: its destructor joins the thread that uses the rest
};

template <>
struct HandleOf<TrainerObject> {
  using Type = plait_trainer;
  static constexpr Kind kind = Kind::trainer;
};

}  // namespace plait::c_api

// What an export takes of a training run.
#include "bindings/c/train/trainer_options.h"
#include "bindings/c/training.h"
#include "core/train/trained_weights.h"

namespace plait::c_api {

std::map<std::string, Tensor> trained_tensors_of(ModelObject& model, const Settings& settings) {
  const std::string checkpoint = settings.text("checkpoint"), adapter = settings.text("adapter");
  if (!checkpoint.empty() && !adapter.empty())
    throw Error(Code::invalid_argument, "an export takes a checkpoint or an adapter, not both",
                "a run's checkpoint has its adapters");
  if (checkpoint.empty() && adapter.empty()) return {};
  const Graph& graph = model.opened().imported.graph;
  CompileOptions compile = model.compile_options();
  compile.exact_activations = settings.text("activations") == "exact";
  ThreadPool pool(usable_processors());
  return checkpoint.empty() ? tensors_of_adapter(graph, compile, adapter, &pool)
                            : tensors_of_checkpoint(graph, compile, checkpoint, &pool);
}

}  // namespace plait::c_api

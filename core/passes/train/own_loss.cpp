// A graph with its own loss is trained as written: no layers are recognised, and it takes its own inputs.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/train/train.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/train/parameters.h"

namespace plait {
namespace {

/// The symbol of the first input with an open first dim; -1 if there is none.
SymbolId batch_of(const Graph& graph) {
  for (ValueId id : graph.inputs) {
    const auto& dims = graph.value(id).type.dims;
    if (!dims || dims->empty()) continue;
    if (auto multiple = (*dims)[0].single_multiple()) return multiple->symbol;
  }
  return -1;
}

}  // namespace

int spread_dim(const Graph& graph, ValueId input, int64_t ranks, const TrainingOptions& training) {
  if (training.loss.empty()) return 1;
  const auto& dims = graph.value(input).type.dims;
  if (!dims || dims->empty() || (*dims)[0].is_constant()) return -1;
  const SymbolId batch = batch_of(graph);
  const auto multiple = (*dims)[0].single_multiple();
  return multiple && multiple->symbol == batch && multiple->factor % ranks == 0 ? 0 : -1;
}

void prepare_own_loss(Graph& graph, PassContext& context) {
  const std::string& name = context.training->loss;
  auto found = std::find_if(graph.outputs.begin(), graph.outputs.end(),
                            [&](ValueId id) { return graph.value(id).name == name; });
  if (found == graph.outputs.end()) {
    std::vector<std::string> names;
    for (ValueId id : graph.outputs) names.push_back(quote(graph.value(id).name));
    throw Error(Code::not_found, cat("the model has no output ", quote(name), " to be its loss"),
                cat("its outputs are ", join(names, ", ")));
  }
  if (context.training->has_adapters())
    throw Error(Code::unsupported,
                "adapters need a recognised decoder; a graph with its own loss is trained as written",
                "train its weights (leave out lora)");
  graph.outputs = {*found};
  const Type& type = graph.value(graph.outputs[0]).type;
  const bool one =
      type.dims && std::all_of(type.dims->begin(), type.dims->end(), [](const Dim& dim) { return dim == Dim(1); });
  if (!is_float(type.dtype) || !one)
    throw Error(Code::unsupported,
                cat("the output ", quote(name), " is ", dtype_name(type.dtype),
                    type.dims ? text(*type.dims, graph.symbols) : std::string(" of an unknown shape"),
                    ", and a loss is one float"));
  graph.remove_dead();
  const AxisList data = context.options.mesh.parts("data");
  if (const SymbolId batch = batch_of(graph); !data.empty() && batch >= 0)
    substitute(graph, batch, Dim(context.options.mesh.blocks(data)) * Dim::symbol(batch));
}

}  // namespace plait

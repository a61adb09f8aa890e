#include "core/passes/choose.h"

#include "core/base/token_weight.h"

namespace plait {

void choose(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) return;
  const ValueId logits = graph.outputs[0];
  const Type type = graph.value(logits).type;
  if (type.dtype != DType::f32 || !type.dims || type.dims->size() != 3) return;
  const auto input = [&](const char* name, DType dtype, const Dim& count, int64_t words) {
    graph.inputs.push_back(graph.add_value(name, {dtype, Dims{(*type.dims)[0], count, words}}));
    return graph.inputs.back();
  };
  const ValueId settings = input("settings", DType::i64, (*type.dims)[1], choice_words);
  const ValueId edits = input("edits", DType::i32, graph.symbol("e"), edit_words);
  const ValueId tokens = graph.add_node("plait.Sample", {logits, settings, edits}).outputs[0];
  graph.value(tokens).type = {DType::i32, Dims{(*type.dims)[0], (*type.dims)[1]}};
  graph.outputs.push_back(tokens);
  context.decoder.chooses = true;
}

}  // namespace plait

#include "core/plan/shape/planned_decoder.h"

#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "core/passes/stage/stage.h"

namespace plait {

PlannedDecoder planned_decoder(Graph graph, const CompileOptions& options, int64_t sequence) {
  PlannedDecoder out{options, {}, std::make_shared<const Graph>(graph)};
  PassContext context{options, {}, {}, false};
  if (!run_recognition(graph, context))
    throw Error(Code::unsupported,
                cat("the model cannot be planned for, since it is not recognised: ", context.decoder.why_not),
                "see `plait inspect`");
  const Decoder& decoder = context.decoder;
  DecoderShape& shape = out.shape;
  shape.hidden = decoder.hidden;
  shape.vocabulary = decoder.vocabulary;
  shape.sequence = sequence;
  for (const AttentionLayer& layer : decoder.layers) {
    shape.heads = std::gcd(shape.heads, layer.query_heads);
    shape.kv_heads = std::gcd(shape.kv_heads, layer.kv_heads);
  }
  for (const Node& node : graph.nodes)
    if (node.op == "plait.Experts" && node.inputs[3] != no_value) {
      const Dim& count = (*graph.value(node.inputs[3]).type.dims)[0];
      if (count.is_constant()) shape.experts = std::gcd(shape.experts, count.constant());
    }
  const StageUnits units = stage_units(graph, context);
  if (!units.layers)
    throw Error(Code::unsupported,
                "the model cannot be planned for: its graph does not show layers that can be cut apart",
                "see `plait inspect`");
  shape.layers = static_cast<int64_t>(units.units.size()) - 2;
  return out;
}

}  // namespace plait

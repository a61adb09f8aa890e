// Pass drop_cache: rewrites attention for training on whole documents. Attention reads the row's own keys and values,
// states start each document as zeros, and there is no cache: PagedAttention after KvWrite becomes PackedAttention,
// CausalConv PackedConv and LinearAttention PackedLinearAttention. Linears always have many rows, and may sum in
// another order than for few (kernels/cpu/training/linear_back.cpp).
#include <algorithm>

#include "core/base/error.h"
#include "core/passes/train/train.h"

namespace plait {
namespace {

/// The variant of `node` whose documents start with zero states: without operand 0, the state, and without its slots.
void begin_anew(Node& node, const char* op, size_t slots) {
  node.op = op;
  node.inputs.erase(node.inputs.begin() + static_cast<std::ptrdiff_t>(slots));
  node.inputs.erase(node.inputs.begin());
  node.outputs.erase(node.outputs.begin());
}

}  // namespace

void drop_cache(Graph& graph, PassContext& context) {
  const std::vector<int32_t> producer = producers(graph);
  const bool narrow = context.options.dtype == DType::bf16;
  for (Node& node : graph.nodes) {
    if (node.op == "plait.CausalConv") begin_anew(node, "plait.PackedConv", 4);
    if (node.op == "plait.LinearAttention") begin_anew(node, "plait.PackedLinearAttention", 5);
    if (node.op == "plait.Linear") {
      node.attributes.set("many_rows", int64_t{1});
      // Quantised weights are rounded as frozen floats are; generation, which reads them in place, multiplies x
      // unrounded.
      if (narrow && graph.value(node.inputs[1]).type.dims->size() == 3) node.attributes.set("round_x", int64_t{1});
    }
    if (node.op != "plait.PagedAttention") continue;
    const Node& write = graph.nodes[static_cast<size_t>(producer[static_cast<size_t>(node.inputs[1])])];
    PLAIT_ASSERT(write.op == "plait.KvWrite" && write.outputs[0] == node.inputs[1]);
    std::vector<ValueId> inputs{node.inputs[0], write.inputs[2], write.inputs[3], node.inputs[4]};
    for (size_t k = 6; k < node.inputs.size(); ++k) inputs.push_back(node.inputs[k]);
    node.op = "plait.PackedAttention";
    if (narrow) node.attributes.set("round_x", int64_t{1});
    node.inputs = std::move(inputs);
    const Type& q = graph.value(node.inputs[0]).type;
    const ValueId statistics = graph.add_value("", {q.dtype, Dims(q.dims->begin(), q.dims->end() - 1)});
    node.outputs.push_back(statistics);
  }
  graph.outputs.resize(1);  // logits
  graph.remove_dead();
  // Removes slots, pages and state positions, which have no reader now, and inputs of row selection by length.
  const auto readers = consumers(graph);
  std::erase_if(graph.inputs, [&](ValueId id) {
    const std::string& name = graph.value(id).name;
    return readers[static_cast<size_t>(id)].empty() &&
           (name.starts_with("slots.") || name.starts_with("pages.") || name == "states");
  });
  context.decoder.has_hidden = false;
}

}  // namespace plait

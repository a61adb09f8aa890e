// Raise, findings: describes what was recognised, with the file's node names.
#include "core/base/text.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

/// Descriptions of a canonical node; several for an attention with extras.
std::vector<std::string> patterns_of(const Graph& graph, const Node& node) {
  if (node.op == "RMSNormalization") return {"RMSNorm"};
  if (node.op == "LayerNormalization") return {"LayerNorm"};
  if (node.op == "plait.RoPE") return {"RoPE"};
  if (node.op == "plait.Embedding") return {"Embedding"};
  if (node.op == "plait.Linear") return {cat("Linear ", dtype_name(graph.value(node.inputs[1]).type.dtype))};
  if (node.op == "plait.Experts") return {cat("Experts ", dtype_name(graph.value(node.inputs[3]).type.dtype))};
  if (node.op == "plait.CausalConv") return {"causal convolution"};
  if (node.op == "plait.LinearAttention") return {"linear attention"};
  if (node.op == "Relu") return {"activation relu"};
  if (node.op == "Swish")
    return {node.attributes.real("alpha", 1) == 1 ? "activation silu" : "activation quick_gelu"};
  if (node.op == "Gelu")
    return {node.attributes.string("approximate", "none") == "tanh" ? "activation gelu_tanh" : "activation gelu"};
  if (node.op != "plait.PagedAttention") return {};
  const int64_t window = node.attributes.integer("window", 0);
  std::vector<std::string> out{window ? cat("attention, window ", window) : "attention"};
  if (node.inputs.size() > 6 && node.inputs[6] != no_value) out.emplace_back("attention sink");
  if (node.inputs.size() > 7) out.emplace_back("ALiBi");
  return out;
}

}  // namespace

void list_findings(const Graph& graph, Decoder& decoder) {
  for (const Node& node : graph.nodes) {
    const std::vector<std::string> patterns = patterns_of(graph, node);
    for (const std::string& pattern : patterns) decoder.found.push_back({pattern, node.name});
    if (patterns.empty() && node.op.rfind("plait.", 0) != 0) decoder.plain.push_back({node.op, node.name});
  }
  for (int64_t limit : decoder.length_limits) decoder.found.push_back({cat("choice by length, beyond ", limit), ""});
}

}  // namespace plait

#include "importers/onnx/unknown_ops.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::onnx_import {
namespace {

struct Instead {
  std::vector<std::string_view> ops;  ///< the op, or a domain's ops: "ai.onnx.ml."
  const char* hint;
};

const char* instead_of(std::string_view op) {
  static const std::vector<Instead> rows = {
      {{"ImageDecoder"}, "decode the image before, and pass its pixels: cut the graph after this node"},
      {{"com.microsoft.BeamSearch", "com.microsoft.GreedySearch", "com.microsoft.Sampling",
        "com.microsoft.WhisperBeamSearch"},
       "a generator does what this op does: export the decoder by itself, and open that"},
      {{"com.microsoft.nchwc.", "com.ms.internal.nhwc."},
       "this file was optimized for one processor: save it with ONNX Runtime's optimization level extended "
       "(ORT_ENABLE_EXTENDED), or "
       "open the file before optimization"},
      {{"ai.onnx.ml.ZipMap"},
       "convert the classifier without it (skl2onnx: options={\"zipmap\": False}), or cut the graph before this "
       "node, whose operand "
       "holds the probabilities"},
      {{"ai.onnx.ml."},
       "convert the model with a tool that writes it in operations on tensors of the domain ai.onnx"},
  };
  for (const Instead& row : rows)
    for (std::string_view one : row.ops)
      if (op == one || (one.ends_with('.') && op.starts_with(one))) return row.hint;
  return "export the model without this op, or decompose it into standard ops; `plait ops` lists those there are";
}

}  // namespace

void refuse_unknown(const OpSet& ops, const Graph& graph, const Node& node) {
  if (ops.find(node.op)) return;
  std::vector<std::string> types;
  for (ValueId id : node.inputs) {
    const DType dtype = id == no_value ? DType::none : graph.value(id).type.dtype;
    types.emplace_back(id == no_value ? "none" : dtype == DType::none ? "not known" : dtype_name(dtype));
  }
  throw Error(Code::unsupported,
              cat("Plait does not have this op", types.empty() ? "" : cat("; its inputs are ", join(types, ", "))),
              ops.lacking().empty() ? instead_of(node.op) : cat(ops.lacking(), "; or ", instead_of(node.op)));
}

}  // namespace plait::onnx_import

#pragma once
// Finds the weights of a graph that can be stored in blocks.
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/base/decoder.h"

namespace plait {

/// A product with a constant matrix, or the lookup of its rows by token.
struct QuantizedNode {
  enum class Kind : uint8_t { linear, head, embedding };
  Kind kind = Kind::linear;
  int32_t node = -1;
  ValueId x = no_value;       ///< the activations; of an embedding the ids
  Constant weight;            ///< [n, k] after its steps; [rows, width] of an embedding
  DType dtype = DType::none;  ///< of the activations
  std::string output;         ///< the value's name in the file
};

struct WeightsFound {
  std::vector<QuantizedNode> nodes;  ///< in the graph's order
  std::vector<std::string> kept;     ///< products with constants that stay floats, each with the reason
};

/// The weights of MatMul and Gemm nodes, and of the table that the decoder's ids are looked up in. The head is the product that the
/// logits come from. What chooses experts (a product whose results go to TopK) is kept. `interface`: of a graph without ids and logits
/// too.
WeightsFound find_weights(const Graph& graph, const DecoderInterface& interface);

}  // namespace plait

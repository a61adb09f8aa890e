#pragma once
// Rewrites a file so that some of its nodes read their weights in blocks of small integers (com.microsoft's MatMulNBits and
// GatherBlockQuantized).
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/tensor.h"
#include "importers/onnx/external_data.h"

namespace plait {

/// A matrix [n, k] whose element is (code - zero) * scale, with a scale and a zero for each block of inputs.
struct BlockWeight {
  int64_t n = 0, k = 0;
  int64_t bits = 4;    ///< 2, 4 or 8 of a code
  int64_t block = 32;  ///< a power of two, at least 16
  Tensor codes;        ///< u8 [n, blocks, block * bits / 8], lowest bits first; blocks = k / block, rounded up
  Tensor scales;       ///< [n, blocks], of the activations' dtype
  std::optional<Tensor> zeros;  ///< u8 [n, bytes of `blocks` codes]; nothing: 2^(bits - 1)
};

/// By the name of a node's first output: MatMul or Gemm, with the weight as its second operand, or Gather, with it as its first.
using BlockWeights = std::map<std::string, std::shared_ptr<const BlockWeight>>;

/// A file and the bytes that it refers to.
struct RewrittenModel {
  std::shared_ptr<const Blob> file;
  ExternalResolver data;
};

/// The original with these weights. The floats are left out, with the nodes that only they went through, unless something else reads
/// them; all else is copied byte for byte. A weight that several nodes share is written once. Throws what import_bytes throws, and
/// Error(unsupported) naming an output that no node of these kinds in the main graph makes.
RewrittenModel with_block_weights(const std::shared_ptr<const Blob>& original, const ExternalResolver& data,
                                  const BlockWeights& weights);

/// First outputs of the nodes whose weights `with_block_weights` can replace: those of the main graph, not of functions and bodies.
std::set<std::string> outputs_with_weights(const std::shared_ptr<const Blob>& original);

}  // namespace plait

#pragma once
// Raising by evaluation: a region of the graph is run on numbers and compared with a canonical op.
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/passes/raise/raiser.h"

namespace plait {

/// Evaluates regions of a typed graph. The graph may get constants and values, but no other nodes.
class RegionProbe {
 public:
  RegionProbe(Graph& graph, const PassContext& context) : graph(graph), context_(context) {}

  /// The region's output for `tokens` tokens, given contents of its entry and side values; nullopt if it cannot be
  /// evaluated.
  std::optional<std::vector<float>> run(const Region& region, const Shape& shape, int64_t tokens,
                                        const std::vector<float>& entry,
                                        const std::vector<std::pair<ValueId, Tensor>>& side = {}) const;
  /// A value that depends only on positions, for tokens at these places.
  Tensor at_positions(ValueId id, const std::vector<int32_t>& places) const;

  /// Null if the rank is unknown.
  const Dims* dims(ValueId id) const;
  std::optional<int64_t> last_size(ValueId id) const;

  Graph& graph;

 private:
  const PassContext& context_;
};

std::vector<float> floats(const Tensor& tensor);
/// Equal up to f32 rounding, relative to the maximum of `b`; false if anything is not finite.
bool close(const std::vector<float>& a, const std::vector<float>& b);
/// Reproducible numbers in [low, high).
std::vector<float> samples(size_t count, float low, float high);

// The canonical nodes that compute a region's output from its entry; nullopt if none fit.

/// y = f(x) elementwise, for a known f.
std::optional<Node> lift_activation(const RegionProbe& probe, const Region& region);
/// y = x / rms(x) * w, or (x - mean) / deviation * w + b, over the last axis, for any w and b.
std::optional<Node> lift_norm(const RegionProbe& probe, const Region& region);
/// x cos + rotate(x) sin over [b, heads, s, d], in any form.
std::optional<std::vector<Node>> lift_rope(const RegionProbe& probe, const Region& region);
/// ONNX's RotaryEmbedding, with tables per token, or tables by position and position ids.
std::optional<std::vector<Node>> lift_rotary_op(const RegionProbe& probe, const Node& node);

}  // namespace plait

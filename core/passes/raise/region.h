#pragma once
// Lifting by evaluation: a region of the graph is run on numbers and compared with a canonical op.
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/passes/raise/raiser.h"

namespace plait {

/// Runs regions of a graph whose values have types. The graph may get constants and values, not other nodes.
class RegionProbe {
 public:
  RegionProbe(Graph& graph, const PassContext& context) : graph(graph), context_(context) {}

  /// The region's output for `tokens` tokens when its entry holds `entry` and its side values those given; nullopt when
  /// it cannot be run.
  std::optional<std::vector<float>> run(const Region& region, const Shape& shape, int64_t tokens,
                                        const std::vector<float>& entry,
                                        const std::vector<std::pair<ValueId, Tensor>>& side = {}) const;
  /// A value that depends on positions alone, for tokens at these places.
  Tensor at_positions(ValueId id, const std::vector<int32_t>& places) const;

  /// Null where the rank is not known.
  const Dims* dims(ValueId id) const;
  std::optional<int64_t> last_size(ValueId id) const;

  Graph& graph;

 private:
  const PassContext& context_;
};

std::vector<float> floats(const Tensor& tensor);
/// Equal up to the rounding of f32, relative to the largest of `b`; false where anything is not finite.
bool close(const std::vector<float>& a, const std::vector<float>& b);
/// Reproducible numbers in [low, high).
std::vector<float> samples(size_t count, float low, float high);

// What a region is, as nodes that make its output from its entry; nullopt when it is something else.

/// y = f(x), element by element, for a known f.
std::optional<Node> lift_activation(const RegionProbe& probe, const Region& region);
/// y = x / rms(x) * w, or (x - mean) / deviation * w + b, over the last axis, for any w and b.
std::optional<Node> lift_norm(const RegionProbe& probe, const Region& region);
/// x cos + rotate(x) sin over [b, heads, s, d], whatever way it is written.
std::optional<std::vector<Node>> lift_rope(const RegionProbe& probe, const Region& region);
/// ONNX's RotaryEmbedding, with tables per token, or tables by position and position ids.
std::optional<std::vector<Node>> lift_rotary_op(const RegionProbe& probe, const Node& node);

}  // namespace plait

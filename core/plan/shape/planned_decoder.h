#pragma once
// What is planned for: a decoder by its sizes, or a model at hand.
#include <memory>

#include "core/passes/base/pass.h"
#include "core/plan/shape/decoder_shape.h"

namespace plait {

struct PlannedDecoder {
  CompileOptions compile;                        ///< mesh, rank and stages are the plan's
  DecoderShape shape;                            ///< of a model at hand: what planned_decoder reads off its graph
  std::shared_ptr<const Graph> graph = nullptr;  ///< of a model at hand, as imported; null: `shape` makes one

  /// With so many layers; of a model at hand with all of them.
  Graph graph_of(int64_t layers) const { return graph ? *graph : decoder_graph(shape, layers, compile.ops); }
};

/// A model at hand. Of its shape `layers` are those that can be cut into stages, `heads` and `kv_heads` the numbers that all attention
/// layers' share evenly (0 without attention), `experts` those that all stacks of experts share evenly (0 without), `hidden` and
/// `vocabulary` the head's; the rest is 0. `sequence`: tokens of a sample.
/// Throws Error(unsupported) if the decoder is not recognised, with the reason.
PlannedDecoder planned_decoder(Graph graph, const CompileOptions& options, int64_t sequence);

}  // namespace plait

#pragma once
// Pass raise: recognises the decoder in an exporter's graph and rewrites it in canonical ops.
#include "core/passes/base/pass.h"

namespace plait {

/// Sets `context.decoder`; its `why_not` is the reason if the graph is not recognised.
void raise(Graph& graph, PassContext& context);

/// Of a plain graph on the processor: ops of com.microsoft on f32 become the ONNX ops that they are made of, where these have the
/// faster kernels: gelus, norms of sums, products of transposed matrices. Types must be inferred.
void spell_fused(Graph& graph, PassContext& context);
/// Whether it may do so to nodes of that op.
bool is_spelled(std::string_view op);

}  // namespace plait

#pragma once
// Pass raise: recognises the decoder in an exporter's graph and rewrites it in canonical ops.
#include "core/passes/base/pass.h"

namespace plait {

/// Sets `context.decoder`; its `why_not` is the reason if the graph is not recognised.
void raise(Graph& graph, PassContext& context);

}  // namespace plait

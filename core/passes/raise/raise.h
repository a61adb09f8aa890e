#pragma once
// Pass raise: recognises the decoder in an exporter's graph and rewrites it in canonical ops.
#include "core/passes/base/pass.h"

namespace plait {

/// Leaves what it recognised in `context.decoder`; `why_not` names the obstacle otherwise.
void raise(Graph& graph, PassContext& context);

}  // namespace plait

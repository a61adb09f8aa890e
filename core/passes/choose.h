#pragma once
// Pass choose: a device chooses the tokens itself, so that a step returns them instead of logits.
#include "core/passes/base/pass.h"

namespace plait {

/// Appends plait.Sample to a recognised decoder that runs on a device: the inputs `settings` i64 [b, r, 6] and `edits` i32 [b, e, 5],
/// and as the last output the tokens i32 [b, r].
void choose(Graph& graph, PassContext& context);

}  // namespace plait

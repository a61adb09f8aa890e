#pragma once
// Pass adapt: adds low-rank adapters or a prefix to a recognised decoder.
#include "core/passes/base/pass.h"

namespace plait {

void adapt(Graph& graph, PassContext& context);
/// Prefix tuning: trained keys and values before those of each document.
void add_prefix(Graph& graph, PassContext& context);

}  // namespace plait

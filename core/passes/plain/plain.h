#pragma once
// Passes of plain graphs: what exporters spell in many nodes, or in types and layouts without a fast kernel, becomes what has one.
// Results stay the file's but for the order of sums, and codes but for a step at ties. Devices have kernels for the file's own nodes.
#include "core/passes/base/pass.h"

namespace plait {

void in_codes(Graph& graph, PassContext& context);
void in_f32(Graph& graph, PassContext& context);
void attend(Graph& graph, PassContext& context);
void channels_last(Graph& graph, PassContext& context);
void chains(Graph& graph, PassContext& context);

}  // namespace plait

#pragma once
// The ops there are: one schema row each, in one file a family. What a row means: core/graph/schema.h.
#include "core/graph/schema.h"

namespace plait {

/// Adds the rows of all ops that Plait knows to `ops`: ONNX's in their newest form (opset 24; importers convert
/// older ones), Plait's own ("plait."), and those of "com.microsoft." that exporters write.
void register_ops(OpSet& ops);

}  // namespace plait

#pragma once
// Registers all ops: one schema row each, one file per family. For the meaning of a row see core/graph/schema.h.
#include "core/graph/schema.h"

namespace plait {

/// Adds the rows of all known ops to `ops`: ONNX's in their newest form (opset 24; importers convert older ones),
/// Plait's own ("plait."), and those of "com.microsoft." that exporters write.
void register_ops(OpSet& ops);

}  // namespace plait

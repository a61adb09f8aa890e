#pragma once
// The families of ai.onnx.ml, for register_ops. Ops of maps and support vectors are not there.
#include "core/graph/schema.h"

namespace plait {

void register_features(OpSet& ops);
void register_labels(OpSet& ops);
void register_linear_models(OpSet& ops);
void register_trees(OpSet& ops);

}  // namespace plait

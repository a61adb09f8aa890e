#pragma once
// The families of ai.onnx.ml, for register_ops. Ops of maps are not there.
#include "core/graph/schema.h"

namespace plait {

void register_features(OpSet& ops);
void register_labels(OpSet& ops);
void register_linear_models(OpSet& ops);
void register_support_vectors(OpSet& ops);
void register_trees(OpSet& ops);

}  // namespace plait

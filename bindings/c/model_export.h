#pragma once
// Exports models as ONNX files.
#include <string>

#include "bindings/c/objects.h"
#include "importers/onnx/block_weights.h"

namespace plait::c_api {

/// Writes the model into `directory`, with `changes`, and its further files. `plan` may be null. Throws the errors of
/// export_model and of with_block_weights, Error(unsupported) for a tensor that is not in the file, and Error(cancelled).
struct ModelChanges {
  FileTensors tensors;                        ///< in place of the file's
  const DeviceConfiguration* plan = nullptr;  ///< null: none
  BlockWeights blocks = {};                   ///< in place of floats
};
void write_model(ModelObject& model, const ModelChanges& changes, const std::string& directory,
                 LoadProgress* progress);

}  // namespace plait::c_api

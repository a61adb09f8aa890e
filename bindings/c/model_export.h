#pragma once
// Exports models as ONNX files.
#include <map>
#include <string>

#include "bindings/c/objects.h"
#include "importers/onnx/block_weights.h"

namespace plait::c_api {

/// Writes the model into `directory`, with `changes`, and its further files. `plan` may be null. Throws the errors of
/// export_model and of with_block_weights, Error(unsupported) for a tensor that is not in the file, and Error(cancelled).
struct ModelChanges {
  std::map<std::string, Tensor> tensors;           ///< in place of the file's
  const DeviceConfiguration* plan = nullptr;  ///< null: none
  BlockWeights blocks = {};                   ///< in place of floats
};
void write_model(ModelObject& model, const ModelChanges& changes, const std::string& directory,
                 LoadProgress* progress);

/// The model's weights, rounded by the options of an export. Throws Error(invalid_argument), Error(cancelled), and the errors of reading
/// texts to calibrate on. bindings/c/quantize has it, a part that a library can be built without (PLAIT_QUANTIZE).
BlockWeights quantized_weights(ModelObject& model, const Settings& settings, LoadProgress& progress);

}  // namespace plait::c_api

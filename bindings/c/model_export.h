#pragma once
// Exports models as ONNX files.
#include <string>

#include "bindings/c/objects.h"

namespace plait::c_api {

/// Writes the model into `directory`, with these tensors in place of the file's, and its further files. `plan` may be
/// null. Throws the errors of export_model, and Error(unsupported) for a tensor that is not in the file.
void write_model(ModelObject& model, const FileTensors& tensors, const DeviceConfiguration* plan,
                 const std::string& directory);

}  // namespace plait::c_api

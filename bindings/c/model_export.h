#pragma once
// Models as ONNX files again.
#include <map>
#include <string>

#include "bindings/c/objects.h"

namespace plait::c_api {

/// Writes the model into `directory`, with these tensors in the place of the file's, and what lies beside it. `plan` may be
/// null. Throws what export_model throws, and Error(unsupported) for a tensor that has no place in the file.
void write_model(ModelObject& model, const std::map<std::string, Tensor>& tensors, const DeviceConfiguration* plan,
                 const std::string& directory);

}  // namespace plait::c_api

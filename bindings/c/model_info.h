#pragma once
// Implements `plait inspect`.
#include <string>

namespace plait::c_api {

class ModelObject;

/// JSON of plait_model_info.
std::string model_info(ModelObject& model);
/// The text form after a pass; throws Error(not_found) listing the passes.
std::string model_dump(ModelObject& model, const std::string& pass);

}  // namespace plait::c_api

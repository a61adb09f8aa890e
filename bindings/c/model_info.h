#pragma once
// What `plait inspect` prints.
#include <string>

namespace plait::c_api {

class ModelObject;

/// JSON, as plait_model_info gives it.
std::string model_info(ModelObject& model);
/// The text form after a pass; throws Error(not_found) that lists the passes.
std::string model_dump(ModelObject& model, const std::string& pass);

}  // namespace plait::c_api

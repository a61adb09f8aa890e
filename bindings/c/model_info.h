#pragma once
// Implements `plait inspect`.
#include <cstdint>
#include <string>

#include "core/graph/graph.h"

namespace plait::c_api {

class ModelObject;

/// JSON of plait_model_info.
std::string model_info(ModelObject& model);
/// Elements of its weights; tied ones count once.
int64_t parameters_of(const Graph& graph);
/// The text form after a pass; throws Error(not_found) listing the passes.
std::string model_dump(ModelObject& model, const std::string& pass);

}  // namespace plait::c_api

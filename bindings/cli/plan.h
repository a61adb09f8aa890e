#pragma once
// The plan of a mesh, as plait_model_plan gives it, for people.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plait::cli {

/// Tables of text.
std::string plan_text(const nlohmann::ordered_json& plan);
/// The same of a training's, as plait_model_plan_training gives it.
std::string training_plan_text(const nlohmann::ordered_json& plan);
/// A page of HTML that needs nothing beside it. `model` is its title.
std::string plan_page(const nlohmann::ordered_json& plan, const std::string& model);

}  // namespace plait::cli

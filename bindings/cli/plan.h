#pragma once
// Formats the plans of plait_model_plan for reading.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plait::cli {

/// Tables of text.
std::string plan_text(const nlohmann::ordered_json& plan);
/// The same for plait_model_plan_training.
std::string training_plan_text(const nlohmann::ordered_json& plan);
/// A self-contained HTML page. `model` is its title.
std::string plan_page(const nlohmann::ordered_json& plan, const std::string& model);
std::string training_plan_page(const nlohmann::ordered_json& plan, const std::string& model);

/// Of plait_plan and plait_model_best_plan, with the option drawings. `model`: "" for a decoder by its sizes; `command`: what runs it.
std::string best_plan_page(const nlohmann::ordered_json& found, const std::string& model, const std::string& command);

/// Of plait_model_info.
std::string model_page(const nlohmann::ordered_json& info, const std::string& model);
/// Prints the text or JSON of plait_model_plan_training, and writes the page where there is a file for it.
void answer_training_plan(const std::string& plan, const std::string& model, const std::string& html, bool json);

}  // namespace plait::cli

#include "bindings/cli/input_encoders.h"

#include <algorithm>
#include <set>

namespace plait::cli {
namespace {

std::string names_of(const std::vector<plait_operand>& operands) {
  std::string out;
  for (const plait_operand& one : operands) out += (out.empty() ? "" : ", ") + std::string(one.name);
  return out;
}

/// The output with rows: by its name, or the only one.
std::string rows_of(const std::string& file, const std::vector<plait_operand>& outputs) {
  for (const plait_operand& one : outputs)
    for (const char* usual : {"image_features", "audio_features", "inputs_embeds"})
      if (std::string(one.name) == usual) return usual;
  if (outputs.size() == 1) return outputs[0].name;
  throw UsageError(
      file + " has several outputs, and none is called image_features or audio_features: " + names_of(outputs),
      "run it with `plait run`, and pass its rows with --inputs-embeds");
}

/// Runs an encoder if it takes one of the inputs, which it adds to `taken`.
void run_encoder(const std::string& file, const InputFiles& given, std::set<std::string>& taken,
                 plait_api::Options& request) {
  plait_api::Options options;
  options.set("tokenizer", "none");
  const plait_api::Model model(file, options);
  const plait_api::Session session(model);
  std::vector<std::pair<std::string, plait_api::Tensor>> tensors;
  std::string missing;
  for (const plait_operand& input : session.inputs()) {
    const auto found =
        std::find_if(given.begin(), given.end(), [&](const auto& one) { return one.first == input.name; });
    if (found == given.end()) missing = input.name;
    else tensors.emplace_back(input.name, plait_api::Tensor::read(found->second, input.dtype));
  }
  if (tensors.empty()) return;
  if (!missing.empty())
    throw UsageError(file + " takes " + names_of(session.inputs()) + ", and " + missing + " is missing",
                     "add --input " + missing + "=FILE.npy");
  std::vector<std::pair<std::string, const plait_api::Tensor*>> inputs;
  for (const auto& [name, tensor] : tensors) {
    inputs.emplace_back(name, &tensor);
    taken.insert(name);
  }
  const std::string output = rows_of(file, session.outputs());
  const bool has_option = output == "image_features" || output == "audio_features";
  request.set(has_option ? output : "inputs_embeds", session.run(inputs, {output})[0]);
}

}  // namespace

void set_inputs(const plait_api::Model& model, const InputFiles& inputs, plait_api::Options& request) {
  if (inputs.empty()) return;
  const auto info = nlohmann::json::parse(model.info());
  std::set<std::string> taken;
  std::string files;
  for (const auto& file : info.value("input_encoders", nlohmann::json::array())) {
    files += (files.empty() ? "" : ", ") + file.get<std::string>();
    run_encoder(file.get<std::string>(), inputs, taken, request);
  }
  const auto rows = option_rows("request");
  for (const auto& [name, file] : inputs) {
    const bool is_option =
        std::any_of(rows.begin(), rows.end(), [&, key = name](const auto& row) { return row.at("key") == key; });
    if (is_option && (files.empty() || name == "image_grid_thw" || name == "video_grid_thw"))
      set_option(request, name, file);
    else if (!taken.contains(name))
      throw UsageError(files.empty() ? "the model has no encoder next to it that takes " + name
                                     : "no encoder of the model takes " + name + ": " + files,
                       "run the encoder with `plait run`, and pass its rows with --inputs-embeds");
  }
}

}  // namespace plait::cli

// plait run: runs a graph as written, with tensors from and to .npy files.
#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

/// The dtype of the named input; NONE if there is no such input (the run will fail).
plait_dtype dtype_of_input(const plait_api::Session& session, const std::string& name) {
  int64_t inputs = 0, outputs = 0;
  plait_api::check(plait_session_count(session.get(), &inputs, &outputs));
  for (int64_t index = 0; index < inputs; ++index) {
    plait_operand operand{};
    operand.struct_size = sizeof operand;
    plait_api::check(plait_session_input(session.get(), index, &operand));
    if (name == operand.name) return operand.dtype;
  }
  return PLAIT_NONE;
}

}  // namespace

int run_graph(const RunArguments& arguments) {
  std::vector<std::pair<std::string, std::string>> in_files, out_files;
  for (const std::string& text : arguments.inputs) in_files.push_back(name_and_value(text, "--input"));
  for (const std::string& text : arguments.outputs) out_files.push_back(name_and_value(text, "--output"));
  OptionSets options = option_sets(arguments, "session");
  options.model.set("tokenizer", "none");
  plait_api::Model model(arguments.model, options.model);
  plait_api::Session session(model, options.rest);
  std::vector<plait_api::Tensor> tensors;
  for (const auto& [name, file] : in_files) tensors.push_back(plait_api::Tensor::read(file, dtype_of_input(session, name)));
  std::vector<std::pair<std::string, const plait_api::Tensor*>> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) inputs.emplace_back(in_files[i].first, &tensors[i]);
  std::vector<std::string> names;
  for (const auto& [name, file] : out_files) names.push_back(name);
  std::vector<plait_api::Tensor> results = session.run(inputs, names);
  for (size_t i = 0; i < results.size(); ++i) results[i].write(out_files[i].second);
  if (!arguments.trace.empty()) write_file(arguments.trace, session.trace());
  return exit_ok;
}

}  // namespace plait::cli

// plait run: runs a graph as written, with tensors from and to .npy files.
#include <algorithm>
#include <chrono>
#include <cstdio>

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

/// The milliseconds of `count` runs.
template <class Run>
std::vector<double> times_of(Run run, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    out.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return out;
}

void print_times(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  char text[128];
  std::snprintf(text, sizeof text, "median %.3f ms, least %.3f ms, of %zu runs\n", times[times.size() / 2], times.front(),
                times.size());
  answer(text);
}

}  // namespace

int run_graph(const RunArguments& arguments) {
  std::vector<std::pair<std::string, std::string>> in_files, out_files;
  for (const std::string& text : arguments.inputs) in_files.push_back(name_and_value(text, "--input"));
  for (const std::string& text : arguments.outputs) out_files.push_back(name_and_value(text, "--output"));
  OptionSets options = option_sets(arguments, "session");
  options.model.set("tokenizer", "none");
  for (const auto& [key, value] : arguments.session) options.rest.set(key, value);
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
  if (arguments.repeat > 0) print_times(times_of([&] { session.run(inputs, names); }, arguments.repeat));
  if (!arguments.trace.empty()) write_file(arguments.trace, session.trace());
  return exit_ok;
}

}  // namespace plait::cli

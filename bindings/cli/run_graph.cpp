// plait run: runs a graph as written, with tensors from and to .npy files (also in .npz archives, or written as JSON), and lists
// from and to folders of such.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "bindings/cli/common.h"
#include "bindings/cli/json_tensor.h"

namespace plait::cli {
namespace {

/// The named one of the operands; null if there is none (the run will fail).
const plait_operand* operand_of(const std::vector<plait_operand>& operands, const std::string& name) {
  const auto found = std::find_if(operands.begin(), operands.end(), [&](const plait_operand& one) { return name == one.name; });
  return found == operands.end() ? nullptr : &*found;
}

/// The file of part `index` of a list, whose parts are in a folder; of a list of lists it is a folder.
std::string part_file(const std::string& folder, size_t index, int32_t depth) {
  return (std::filesystem::path(folder) / (std::to_string(index) + (depth > 1 ? "" : ".npy"))).string();
}

plait_api::Tensor read_list(const std::string& folder, const plait_operand& operand, int32_t depth) {
  if (!std::filesystem::is_directory(folder))
    throw UsageError("input " + std::string(operand.name) + " is a sequence or an optional: " + folder +
                     " has to be a folder with its parts, " +
                     (depth > 1 ? "in a folder 0, or empty" : "0.npy, 1.npy and so on"));
  std::vector<plait_api::Tensor> parts;
  for (std::string file; std::filesystem::exists(file = part_file(folder, parts.size(), depth));)
    parts.push_back(depth > 1 ? read_list(file, operand, depth - 1) : plait_api::Tensor::read(file, operand.dtype));
  return plait_api::Tensor::list(operand.dtype, parts);
}

/// Parts of an earlier result that this one does not have are removed.
void write_list(const plait_api::Tensor& tensor, const std::string& folder, int32_t depth) {
  std::filesystem::create_directories(folder);
  const std::vector<plait_api::Tensor> parts = tensor.parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string file = part_file(folder, i, depth);
    depth > 1 ? write_list(parts[i], file, depth - 1) : parts[i].write(file);
  }
  std::string file;
  for (size_t i = parts.size(); std::filesystem::exists(file = part_file(folder, i, depth)); ++i) {
    if (depth > 1) write_list(plait_api::Tensor::list(tensor.view().dtype, {}), file, depth - 1);
    std::filesystem::remove(file);  // a folder only if it is empty
  }
}

/// An archive has an array of the operand's name; FILE.npz/NAME is another.
plait_api::Tensor read_operand(const plait_operand* operand, const std::string& name, const std::string& file) {
  const plait_dtype dtype = operand ? operand->dtype : PLAIT_NONE;
  if (operand && !operand->is_list && is_json(file)) return tensor_of_json(file, dtype, name);
  if (!operand || !operand->is_list) return plait_api::Tensor::read(file.ends_with(".npz") ? file + "/" + name : file, dtype);
  return read_list(file, *operand, operand->is_list);
}

void write_operand(const plait_operand* operand, const plait_api::Tensor& tensor, const std::string& file) {
  if (!operand || !operand->is_list) return tensor.write(file);
  write_list(tensor, file, operand->is_list);
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
  print_log(model);
  std::vector<plait_api::Tensor> tensors;
  const std::vector<plait_operand> given = session.inputs(), made = session.outputs();
  for (const auto& [name, file] : in_files) tensors.push_back(read_operand(operand_of(given, name), name, file));
  std::vector<std::pair<std::string, const plait_api::Tensor*>> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) inputs.emplace_back(in_files[i].first, &tensors[i]);
  std::vector<std::string> names;
  for (const auto& [name, file] : out_files) names.push_back(name);
  std::vector<plait_api::Tensor> results = session.run(inputs, names);
  for (size_t i = 0; i < results.size(); ++i) write_operand(operand_of(made, names[i]), results[i], out_files[i].second);
  if (arguments.repeat > 0) print_times(times_of([&] { session.run(inputs, names); }, arguments.repeat));
  if (!arguments.trace.empty()) write_file(arguments.trace, session.trace());
  return exit_ok;
}

}  // namespace plait::cli

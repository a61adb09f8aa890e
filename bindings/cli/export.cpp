// plait export: writes the model as a directory for any ONNX runtime.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "bindings/cli/common.h"

namespace plait::cli {

std::vector<std::pair<std::string, uintmax_t>> files_of(const std::string& directory) {
  std::vector<std::pair<std::string, uintmax_t>> out;
  for (const std::string& name : names_in(directory))
    if (const std::string path = directory + "/" + name; std::filesystem::is_regular_file(path))
      out.emplace_back(name, std::filesystem::file_size(path));
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

void print_written(const std::string& directory) {
  std::string out;
  for (const auto& [name, bytes] : files_of(directory))
    out += (out.empty() ? "" : ", ") + name + " (" + rounded(static_cast<double>(bytes), "B") + ")";
  std::fprintf(stderr, "wrote %s: %s\n", directory.c_str(), out.c_str());
}

int export_model(const ExportArguments& arguments) {
  OptionSets options = option_sets(arguments, arguments.apart ? "trainer" : "export");
  if (!arguments.checkpoint.empty()) options.rest.set("checkpoint", arguments.checkpoint);
  if (!arguments.adapter.empty()) options.rest.set("adapter", arguments.adapter);
  options.model.set("tokenizer", "none");
  if (!arguments.unpack.empty()) set_option(options.model, "unpack", arguments.unpack);
  if (arguments.apart) {
    options.rest.set("frozen", "true");
    plait_api::Trainer(plait_api::Model(arguments.model, options.model), options.rest).save_adapter(arguments.out);
  } else {
    plait_api::Model(arguments.model, options.model).write(arguments.out, options.rest);
  }
  print_written(arguments.out);
  return exit_ok;
}

}  // namespace plait::cli

// Models as ONNX files again.
#include <filesystem>
#include <fstream>

#include "bindings/c/objects.h"
#include "core/passes/shard_annotations.h"
#include "importers/onnx/export.h"

namespace plait::c_api {
namespace {

namespace fs = std::filesystem;

/// What a model directory holds besides the model, where it is there: tokenizer and configurations.
constexpr const char* side_files[] = {"config.json",         "generation_config.json", "genai_config.json",
                                      "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json",
                                      "chat_template.jinja", "chat_template.json"};

void copy_side_files(FileSet& files, const std::string& directory) {
  for (const char* side : side_files) {
    std::string target = directory + "/" + side;
    if (!files.has(side) || fs::exists(target)) continue;
    std::shared_ptr<const Blob> bytes = files.read(side);
    std::ofstream out(target, std::ios::binary);
    if (bytes) out.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    out.close();
    if (!out) throw Error(Code::io, cat("cannot write ", quote(target)));
  }
}

/// What a generator of these settings would do with the weights; nullopt on one rank.
std::optional<DeviceConfiguration> plan_of(ModelObject& model, const Settings& settings) {
  const CompileOptions options = generator_compile_options(model, settings);
  if (options.mesh.ranks() == 1) return std::nullopt;
  const Graph raised = raised_decoder(model, options);
  std::vector<std::string> notes;
  DeviceConfiguration out = planned_configuration(raised, options, notes);
  for (const std::string& note : notes) model.log().write(LogLevel::warning, note);
  return out;
}

void export_to(ModelObject& model, const Settings& settings, const std::string& directory) {
  model.opened();  // what cannot be read is not written
  const std::optional<DeviceConfiguration> plan = plan_of(model, settings);
  const ModelSource& source = model.source();
  const std::string name = fs::path(source.file).filename().string();
  const std::vector<std::string> unread = export_model(source.files->read(source.file), data_of(source),
                                                       {nullptr, plan ? &*plan : nullptr}, directory, name);
  if (!unread.empty())
    model.log().write(LogLevel::warning, cat(unread.size(),
                                             " tensors have no annotation, since no node reads them by their "
                                             "names: ",
                                             quote(unread[0]), unread.size() > 1 ? ", ..." : ""));
  copy_side_files(*source.files, directory);
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_export(plait_model* model, const char* directory, plait_options* options) {
  return guarded([&] {
    const Settings settings = settings_of(options, for_generator);
    export_to(*object_of<ModelObject>(model), settings, required(directory, "directory"));
  });
}

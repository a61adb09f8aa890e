#include "bindings/c/model_export.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "core/passes/shard/annotations.h"
#include "importers/onnx/export.h"

namespace plait::c_api {
namespace {

namespace fs = std::filesystem;

/// Further files of a model directory, if they exist: tokenizer and configurations.
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

/// The plan of a generator with these settings; nullopt on one rank.
std::optional<DeviceConfiguration> plan_of(ModelObject& model, const Settings& settings) {
  const CompileOptions options = generator_compile_options(model, settings);
  if (options.mesh.ranks() == 1) return std::nullopt;
  const Graph raised = raised_decoder(model, options);
  std::vector<std::string> notes;
  DeviceConfiguration out = planned_configuration(raised, options, notes);
  for (const std::string& note : notes) model.log().write(LogLevel::warning, note);
  return out;
}

/// The file's tensors with a checkpoint or an adapter applied.
FileTensors tensors_of(ModelObject& model, const Settings& settings) {
  const std::string checkpoint = settings.text("checkpoint"), adapter = settings.text("adapter");
  if (!checkpoint.empty() && !adapter.empty())
    throw Error(Code::invalid_argument, "an export takes a checkpoint or an adapter, not both",
                "a run's checkpoint has its adapters");
  if (checkpoint.empty() && adapter.empty()) return {};
  const Graph& graph = model.opened().imported.graph;
  CompileOptions compile = model.compile_options();
  compile.exact_activations = settings.text("activations") == "exact";
  ThreadPool pool(usable_processors());
  return checkpoint.empty() ? tensors_of_adapter(graph, compile, adapter, &pool)
                            : tensors_of_checkpoint(graph, compile, checkpoint, &pool);
}

}  // namespace

void write_model(ModelObject& model, const FileTensors& tensors, const DeviceConfiguration* plan,
                 const std::string& directory) {
  const ModelSource& source = model.source();
  const std::string name = fs::path(source.file).filename().string();
  std::set<std::string> written;
  const ChangedTensor changed = [&](const std::string& tensor) -> std::optional<Tensor> {
    auto found = tensors.find(tensor);
    if (found == tensors.end()) return std::nullopt;
    written.insert(tensor);
    return found->second;
  };
  const std::vector<std::string> unread = export_model(model_bytes_of(source), data_of(source),
                                                       {tensors.empty() ? nullptr : changed, plan}, directory, name);
  for (const auto& [tensor, value] : tensors)
    if (!written.contains(tensor))
      throw Error(Code::unsupported, cat("the model's file has no place for the trained tensor ", quote(tensor)));
  if (!unread.empty())
    model.log().write(LogLevel::warning, cat(unread.size(),
                                             " tensors have no annotation, since no node reads them by their "
                                             "names: ",
                                             quote(unread[0]), unread.size() > 1 ? ", ..." : ""));
  copy_side_files(*source.files, directory);
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_export(plait_model* model, const char* directory, plait_options* options) {
  return guarded([&] {
    const Settings settings = settings_of(options, for_export);
    auto object = object_of<ModelObject>(model);
    object->opened();  // fails before anything is written if it cannot be read
    const std::optional<DeviceConfiguration> plan = plan_of(*object, settings);
    write_model(*object, tensors_of(*object, settings), plan ? &*plan : nullptr, required(directory, "directory"));
  });
}

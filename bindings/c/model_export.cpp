#include "bindings/c/model_export.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "bindings/c/training.h"
#include "core/base/draft_directory.h"
#include "core/base/file_writer.h"
#include "core/base/paths.h"
#include "core/graph/graft.h"
#include "core/passes/compile.h"
#include "importers/onnx/export.h"

namespace plait::c_api {
namespace {

namespace fs = std::filesystem;

/// Further files of a model directory, if they exist: tokenizer and configurations.
constexpr const char* side_files[] = {"config.json",         "generation_config.json", "genai_config.json",
                                      "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json",
                                      "chat_template.jinja", "chat_template.json",
                                      "additional_chat_templates/tool_use.jinja"};

void copy_side_files(FileSet& files, const std::string& directory) {
  for (const char* side : side_files) {
    if (!files.has(side)) continue;
    const std::shared_ptr<const Blob> bytes = files.read(side);
    const std::string target = directory + "/" + side;
    make_directories(fs::path(target).parent_path().string());
    FileWriter out(target);
    if (bytes) out.write({bytes->data(), static_cast<size_t>(bytes->size())});
    out.finish();
  }
}

/// Throws Error(invalid_argument) if the directory has the file of a model.
void check_is_new(const std::string& directory, const std::string& file) {
  for (const std::string& path : {cat(directory, "/", file), cat(directory, "/", file, ".data")})
    if (exists(path))
      throw Error(Code::invalid_argument, cat(quote(path, 4096), " is there already"), "export into a directory that holds no model");
}

/// The plan of a generator with these settings, or of a trainer with this pipeline; nullopt on one rank.
std::optional<DeviceConfiguration> plan_of(ModelObject& model, const Settings& settings) {
  CompileOptions options = generator_compile_options(model, settings);
  options.stages = trainer_stages(settings, options.mesh);
  if (settings.has("rank_memory"))
    throw Error(Code::invalid_argument, "option rank_memory has no effect here: only a generator cuts stages by memory",
                "give stages as it prints them");
  if (options.mesh.ranks() == 1) return std::nullopt;
  const Graph raised = raised_decoder(model, options);
  std::vector<std::string> notes;
  DeviceConfiguration out = planned_configuration(model.opened().imported.graph, raised, options, notes);
  for (const std::string& note : notes) model.log().write(LogLevel::warning, note);
  return out;
}

}  // namespace

void write_model(ModelObject& model, const ModelChanges& changes, const std::string& directory,
                 LoadProgress* progress) {
  const ModelSource& source = model.opened().source;
  const std::string name = fs::path(source.file).filename().string();
  std::set<std::string> written;
  const ChangedTensor changed = [&](const std::string& tensor) -> std::optional<Tensor> {
    auto found = changes.tensors.find(tensor);
    if (found == changes.tensors.end()) return std::nullopt;
    written.insert(tensor);
    return found->second;
  };
  const auto beside = model.opened().written ? embeddings_of(source) : std::nullopt;
  const std::string name_beside = beside ? fs::path(beside->file).filename().string() : "";
  DraftDirectory draft(directory);
  check_is_new(directory, name);
  if (beside) check_is_new(directory, name_beside);
  RewrittenModel file{model_bytes_of(source), data_of(source)};
  if (!changes.blocks.empty()) file = with_block_weights(file.file, file.data, changes.blocks);
  const std::vector<std::string> unread = export_model(
      file.file, file.data, {changes.tensors.empty() ? nullptr : changed, changes.plan, progress}, draft.path(), name);
  if (beside) {
    const ChangedTensor changed_there = [&](const std::string& tensor) -> std::optional<Tensor> {
      for (const std::string& one : {grafted(tensor), tensor})
        if (const auto found = changes.tensors.find(one); found != changes.tensors.end() && !written.contains(one)) {
          written.insert(one);
          return found->second;
        }
      return std::nullopt;
    };
    export_model(model_bytes_of(*beside), data_of(*beside),
                 {changes.tensors.empty() ? nullptr : changed_there, nullptr, progress}, draft.path(), name_beside);
  }
  for (const auto& [tensor, value] : changes.tensors)
    if (!written.contains(tensor))
      throw Error(Code::unsupported, cat("the model's file has no place for the trained tensor ", quote(tensor)));
  if (!unread.empty())
    model.log().write(LogLevel::warning, cat(unread.size(),
                                             " tensors have no annotation, since no node reads them by their "
                                             "names: ",
                                             quote(unread[0]), unread.size() > 1 ? ", ..." : ""));
  copy_side_files(*source.files, draft.path());
  draft.publish(name, DraftDirectory::Existing::kept);
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_export(plait_model* model, const char* directory, plait_options* options) {
  return guarded([&] {
    const Settings settings = settings_of(options, for_export);
    auto object = object_of<ModelObject>(model);
    object->opened();  // fails before anything is written if it cannot be read
    const std::string target = required(directory, "directory");
    const ModelObject::Work work(*object);
    const std::optional<DeviceConfiguration> plan = plan_of(*object, settings);
    ModelChanges changes{trained_tensors_of(*object, settings), plan ? &*plan : nullptr};
    if (settings.integer("bits") > 0) changes.blocks = quantized_weights(*object, settings, work.progress());
    write_model(*object, changes, target, &work.progress());
  });
}

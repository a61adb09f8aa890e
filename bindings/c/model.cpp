// Models and tokenizers of the C API.
#include <filesystem>

#include "bindings/c/model_info.h"
#include "bindings/c/objects.h"

namespace plait::c_api {

TokenizerPointer ModelObject::tokenizer() const {
  if (has_tokenizer) return tokenizer_loading.get();
  throw Error(Code::not_found, cat("the model ", quote(file), " has no tokenizer"),
              "put tokenizer.json beside the model, or pass token ids");
}

CompileOptions ModelObject::compile_options() {
  return {registry->ops, registry->kernels, &log, {}, {}, DType::none};
}

namespace {

namespace fs = std::filesystem;

/// A model's files, and which of them is the model.
struct Source {
  std::shared_ptr<FileSet> files;
  std::string file;
  std::string directory;  ///< "": they are in memory
};

Source source_of_path(const std::string& path) {
  std::error_code failure;
  if (fs::is_directory(path, failure)) {
    Source out{directory_files(path), {}, path};
    out.file = choose_model_file(*out.files);
    return out;
  }
  if (!fs::exists(path, failure)) {
    throw Error(Code::not_found, cat("there is no file or directory ", quote(path)),
                "pass a model directory or an .onnx file");
  }
  fs::path file(path);
  std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
  return {directory_files(directory), file.filename().string(), directory};
}

std::string_view text_of_blob(const std::shared_ptr<const Blob>& blob) {
  if (!blob) return {};
  return {reinterpret_cast<const char*>(blob->data()), static_cast<size_t>(blob->size())};
}

TokenizerPointer load_tokenizer(const Source& source, const std::string& cache_dir) {
  if (!source.directory.empty()) return std::make_shared<Tokenizer>(Tokenizer::load(source.directory, cache_dir));
  auto read = [&](const char* name) { return source.files->has(name) ? source.files->read(name) : nullptr; };
  auto tokenizer = read("tokenizer.json"), config = read("tokenizer_config.json");
  auto chat = read("chat_template.jinja"), chat_json = read("chat_template.json");
  return std::make_shared<Tokenizer>(Tokenizer::from_bytes(
      {text_of_blob(tokenizer), text_of_blob(config), text_of_blob(chat), text_of_blob(chat_json)}));
}

ImportedModel import_source(const Source& source, const OpSet& ops) {
  if (!source.directory.empty()) return import_file(source.files->path_of(source.file), ops);
  fs::path beside = fs::path(source.file).parent_path();
  ExternalResolver resolver = [files = source.files, beside](const std::string& location) {
    return files->read((beside / location).lexically_normal().generic_string());
  };
  return import_bytes(source.files->read(source.file), resolver, ops);
}

std::shared_ptr<ModelObject> open_model(Source source, const Settings& settings) {
  auto model = std::make_shared<ModelObject>();
  std::string how = settings.text("tokenizer");
  model->has_tokenizer = how != "none" && source.files->has("tokenizer.json");
  model->text = how == "beside";
  // First, so that the two load side by side. A deferred load happens in the thread of whoever asks first.
  if (model->has_tokenizer) {
    auto load = [source, cache_dir = settings.text("cache_dir")] { return load_tokenizer(source, cache_dir); };
    model->tokenizer_loading = std::async(model->text ? std::launch::async : std::launch::deferred, load).share();
  }
  model->file = source.files->path_of(source.file);
  model->registry = make_registry(settings.text("isa"));
  model->config = read_model_config(*source.files);
  model->imported = import_source(source, model->registry->ops);
  for (const std::string& warning : model->imported.warnings) model->log.write(LogLevel::warning, warning);
  return model;
}

/// A tensor of one-byte elements as a file's bytes.
std::shared_ptr<const Blob> blob_of(const std::shared_ptr<Tensor>& tensor, std::string_view name) {
  if (dtype_bits(tensor->dtype()) != 8) {
    throw Error(Code::invalid_argument,
                cat("the contents of ", quote(name), " are ", dtype_name(tensor->dtype()), ", expected u8"));
  }
  return borrow_blob(tensor->data(), tensor->bytes(), tensor);
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_open(const char* path, plait_options* options, plait_model** out) {
  return create(out,
                [&] { return open_model(source_of_path(required(path, "path")), settings_of(options, for_model)); });
}

plait_status plait_model_open_memory(const char* const* names, plait_tensor* const* contents, int64_t count,
                                     plait_options* options, plait_model** out) {
  return create(out, [&] {
    auto file_names = span_of(names, count, "names");
    auto tensors = span_of(contents, count, "contents");
    std::vector<NamedBlob> blobs;
    for (size_t i = 0; i < file_names.size(); ++i) {
      std::string name = required(file_names[i], "names[i]");
      blobs.push_back({name, blob_of(object_of<Tensor>(tensors[i]), name)});
    }
    Source source{memory_files(std::move(blobs)), {}, {}};
    source.file = choose_model_file(*source.files);
    return open_model(std::move(source), settings_of(options, for_model));
  });
}

plait_status plait_model_info(plait_model* model, plait_tensor** json) {
  return create(json, [&] { return text_tensor(model_info(*object_of<ModelObject>(model))); });
}

plait_status plait_model_dump(plait_model* model, const char* pass, plait_tensor** text) {
  return create(text,
                [&] { return text_tensor(model_dump(*object_of<ModelObject>(model), required(pass, "pass"))); });
}

plait_status plait_log_next(plait_model* model, plait_log_level* level, plait_tensor** text) {
  if (text) *text = nullptr;
  return guarded([&] {
    required(text, "text");
    auto object = object_of<ModelObject>(model);
    LogLevel found{};
    std::string line;
    if (!object->log.next(found, line)) return;
    *text = handle_of(text_tensor(line));
    if (level) *level = static_cast<plait_log_level>(found);
  });
}

plait_status plait_model_release(plait_model* model) { return release<ModelObject>(model); }

plait_status plait_tokenizer_of_model(plait_model* model, plait_tokenizer** out) {
  return create(out, [&] {
    return std::make_shared<TokenizerObject>(TokenizerObject{object_of<ModelObject>(model)->tokenizer()});
  });
}

plait_status plait_tokenizer_open(const char* directory, plait_options* options, plait_tokenizer** out) {
  return create(out, [&] {
    Settings settings = settings_of(options, for_tokenizer);
    auto loaded =
        std::make_shared<Tokenizer>(Tokenizer::load(required(directory, "directory"), settings.text("cache_dir")));
    return std::make_shared<TokenizerObject>(TokenizerObject{std::move(loaded)});
  });
}

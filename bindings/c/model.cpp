// Models and tokenizers of the C API.
#include "bindings/c/model_info.h"

#include "core/base/error_kind.h"
#include "bindings/c/objects.h"

namespace plait::c_api {

namespace {

TextLimits text_limits(const Settings& settings) {
  return {static_cast<uint64_t>(settings.integer("text_bytes")), static_cast<uint64_t>(settings.integer("text_ms"))};
}

/// As options; their table checks them.
Settings request_defaults(const ModelConfig& config) {
  Settings out;
  for (const RequestDefault& one : config.request_defaults) {
    try {
      out.set(one.option, one.value);
    } catch (const Error& error) {
      throw Error(Code::bad_model, cat(one.origin, ": ", error.message()), error.hint());
    }
  }
  return out;
}

std::shared_ptr<const OpenedModel> open_graph(const ModelSource& source, const std::string& isa, Log& log,
                                              LoadProgress& progress) {
  auto out = std::make_shared<OpenedModel>();
  out->registry = make_registry(isa);
  out->source = complete(source, &progress);
  out->config = read_model_config(*out->source.files);
  out->request_defaults = request_defaults(out->config);
  out->imported = import_model(out->source, out->registry->ops, &progress);
  const IdsOnly ids_only = [&](const Graph& embeddings) {
    CompileOptions options{out->registry->ops, out->registry->kernels};
    options.progress = &progress;
    TextEmbeddings found = text_embeddings(embeddings, options, out->config.input_tokens);
    out->given_inputs = std::move(found.inputs);
    return std::move(found.graph);
  };
  if (auto whole = with_embeddings(out->source, out->imported.graph, out->registry->ops, ids_only, &progress))
    out->written = std::exchange(out->imported.graph, *std::move(whole));
  for (const GivenInput& input : out->given_inputs) {
    if (input.name == "image_features" && out->config.image_tokens.empty()) out->config.image_tokens = input.tokens;
    for (int32_t id : input.tokens)
      if (auto& all = out->config.input_tokens; std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  }
  for (const std::string& warning : out->config.warnings) log.write(LogLevel::warning, warning);
  for (const std::string& warning : out->imported.warnings) log.write(LogLevel::warning, warning);
  return out;
}

std::shared_ptr<ModelObject> open_model(const ModelSource& source, const Settings& settings) {
  auto model = std::make_shared<ModelObject>(source, settings);
  if (!settings.boolean("background")) model->opened();
  return model;
}

/// A tensor of one-byte elements as a file's contents.
std::shared_ptr<const Blob> blob_of(const std::shared_ptr<Tensor>& tensor, std::string_view name) {
  if (dtype_bits(tensor->dtype()) != 8) {
    throw Error(Code::invalid_argument,
                cat("the contents of ", quote(name), " are ", dtype_name(tensor->dtype()), ", expected u8"));
  }
  return borrow_blob(tensor->data(), tensor->bytes(), tensor);
}

}  // namespace

std::shared_ptr<ModelObject> open_model(const std::string& path, const Settings& settings) {
  return open_model(find_model(path, settings.text("weights") == "copied", dtype_from_name(settings.text("unpack"))),
                    settings);
}

ModelObject::ModelObject(const ModelSource& source, const Settings& settings)
    : source_(source),
      settings_(settings),
      file_(source.path.empty() ? source.files->path_of(source.file) : source.path),
      graph_([source, isa = settings.text("isa"), this](LoadProgress& progress) {
        return open_graph(source, isa, log_, progress);
      }) {
  if (std::string directory = settings.text("log_dir"); !directory.empty()) log_.keep_file(std::move(directory));
  std::string how = settings.text("tokenizer");
  if (how != "none" && plait::has_tokenizer(source)) {
    tokenizer_.emplace([source, this](LoadProgress& progress) {
      try {
        auto loaded = std::make_shared<const Tokenizer>(
            load_tokenizer(source, settings_.text("cache_dir"), text_limits(settings_)));
        progress.check();
        return loaded;
      } catch (const Error& error) {
        // Prompts of ids work without it; calls that need the tokenizer get this error again.
        if (error.code() != Code::cancelled) log_.write(LogLevel::warning, cat("no text: ", error.message()));
        throw;
      }
    });
    loads_text_ = how == "beside";
    if (loads_text_) tokenizer_->start();  // first, since it takes as long as the rest
  }
  graph_.start();
}

TokenizerPointer ModelObject::tokenizer() {
  if (!tokenizer_) {
    throw Error(Code::not_found, cat("the model ", quote(file_), " has no tokenizer"),
                "put tokenizer.json next to the model, or pass token ids");
  }
  tokenizer_->start();
  return tokenizer_->get();
}

CompileOptions ModelObject::compile_options() {
  const Registry& registry = *opened().registry;
  CompileOptions out{registry.ops, registry.kernels, &log_};
  out.configurations = opened().imported.configurations;
  return out;
}

bool ModelObject::wait(int64_t timeout_ms) const {
  auto start = std::chrono::steady_clock::now();
  if (!graph_.wait(timeout_ms)) return false;
  graph_.get();
  if (!loads_text_) return true;
  auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  if (!tokenizer_->wait(timeout_ms < 0 ? timeout_ms : std::max<int64_t>(timeout_ms - passed.count(), 0)))
    return false;
  try {
    tokenizer_->get();
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;  // prompts of ids work without a tokenizer that is damaged
  }
  return true;
}

double ModelObject::progress() const {
  if (!loads_text_) return graph_.progress();
  return (graph_.progress() + tokenizer_->progress()) / 2;
}

void ModelObject::cancel() {
  graph_.cancel();
  if (tokenizer_) tokenizer_->cancel();
  std::lock_guard lock(work_mutex_);
  for (LoadProgress* one : work_) one->cancel();
}

ModelObject::Work::Work(ModelObject& model) : model_(model), progress_(std::make_unique<LoadProgress>()) {
  std::lock_guard lock(model_.work_mutex_);
  model_.work_.insert(progress_.get());
}
ModelObject::Work::~Work() {
  std::lock_guard lock(model_.work_mutex_);
  model_.work_.erase(progress_.get());
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_open(const char* path, plait_options* options, plait_model** out) {
  return create(out,
                [&] { return open_model(std::string(required(path, "path")), settings_of(options, for_model)); });
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
    return open_model(find_model(std::move(blobs)), settings_of(options, for_model));
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
    if (!object->log().next(found, line)) return;
    *text = handle_of(text_tensor(line));
    if (level) *level = static_cast<plait_log_level>(found);
  });
}

plait_status plait_model_wait(plait_model* model, int64_t timeout_ms) {
  return guarded([&] {
    if (!object_of<ModelObject>(model)->wait(timeout_ms)) throw Error(Code::timeout, "the model is still loading");
  });
}

plait_status plait_model_progress(plait_model* model, double* fraction) {
  return guarded([&] {
    *required(fraction, "fraction") = 0;
    *fraction = object_of<ModelObject>(model)->progress();
  });
}

plait_status plait_model_cancel(plait_model* model) {
  return guarded([&] { object_of<ModelObject>(model)->cancel(); });
}

plait_status plait_model_release(plait_model* model) { return release<ModelObject>(model); }

plait_status plait_tokenizer_of_model(plait_model* model, plait_tokenizer** out) {
  return create(out, [&] {
    return std::make_shared<TokenizerObject>(TokenizerObject{object_of<ModelObject>(model)->tokenizer()});
  });
}

plait_status plait_tokenizer_open(const char* path, plait_options* options, plait_tokenizer** out) {
  return create(out, [&] {
    Settings settings = settings_of(options, for_tokenizer);
    auto loaded = std::make_shared<Tokenizer>(
        open_tokenizer(required(path, "path"), settings.text("cache_dir"), text_limits(settings)));
    return std::make_shared<TokenizerObject>(TokenizerObject{std::move(loaded)});
  });
}

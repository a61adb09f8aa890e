#include "core/model/model_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

using Json = nlohmann::ordered_json;

/// One JSON file; empty if it does not exist.
class ConfigFile {
 public:
  ConfigFile(const FileSet& files, const std::string& name) : path_(files.path_of(name)) {
    if (!files.has(name)) return;
    auto blob = files.read(name);
    auto* text = reinterpret_cast<const char*>(blob->data());
    try {
      json_ = Json::parse(text, text + blob->size());
    } catch (const Json::exception& error) {
      throw Error(Code::bad_model, cat(quote(path_), " is not JSON: ", quote(error.what())));
    }
    if (!json_.is_object()) throw Error(Code::bad_model, cat(quote(path_), " is not a JSON object"));
  }

  bool present() const { return !json_.is_null(); }
  const std::string& path() const { return path_; }

  /// The member at a path such as "model/decoder/filename"; null if it is absent or null.
  const Json* find(std::string_view member) const {
    const Json* at = &json_;
    for (const std::string& key : split(member, '/')) {
      if (!at->is_object()) return nullptr;
      auto next = at->find(key);
      if (next == at->end()) return nullptr;
      at = &*next;
    }
    return at->is_null() ? nullptr : at;
  }

  template <class T>
  std::optional<T> get(std::string_view member) const {
    const Json* found = find(member);
    if (!found) return std::nullopt;
    try {
      return found->get<T>();
    } catch (const Json::exception& error) {
      throw Error(Code::bad_model, cat(quote(path_), ", field ", member, ": ", quote(error.what())));
    }
  }

  /// An id, or a list of ids.
  std::vector<int32_t> ids(std::string_view member) const {
    const Json* found = find(member);
    if (!found) return {};
    if (found->is_array()) return *get<std::vector<int32_t>>(member);
    return {*get<int32_t>(member)};
  }

  /// The field as it is written, for an option.
  void give(std::vector<RequestDefault>& out, const char* member, const char* option, const char* otherwise = nullptr) const {
    const Json* found = find(member);
    if (!found && !otherwise) return;
    out.push_back({option, found ? found->dump() : otherwise, cat(quote(path_), ", field ", member)});
  }

 private:
  std::string path_;
  Json json_;
};

std::vector<RequestDefault> request_defaults(const ConfigFile& generation, const ConfigFile& config) {
  std::vector<RequestDefault> out;
  for (const char* key : {"suppress_tokens", "begin_suppress_tokens"})
    for (const ConfigFile* file : {&generation, &config}) {
      std::vector<std::string> ids;
      for (int32_t id : file->ids(key))
        if (id >= 0) ids.push_back(cat(id));
      if (ids.empty()) continue;
      out.push_back({key, join(ids, ","), cat(quote(file->path()), ", field ", key)});
      break;
    }
  if (!generation.present()) return out;
  // transformers applies these only when sampling; a host that then sets a temperature gets them too.
  bool samples = generation.get<bool>("do_sample").value_or(false);
  if (samples) generation.give(out, "temperature", "temperature", "1");
  generation.give(out, "top_k", "top_k", samples ? "50" : nullptr);
  for (const char* key : {"top_p", "min_p", "repetition_penalty"}) generation.give(out, key, key);
  generation.give(out, "max_new_tokens", "max_tokens");
  generation.give(out, "min_new_tokens", "min_tokens");
  return out;
}

/// The start token, then those that are forced after it: one, or [[1, id], [2, id], ...] up to an id that is left open.
std::vector<int32_t> decoder_tokens(const ConfigFile& config, const ConfigFile& generation, const ConfigFile& genai) {
  const auto first_of = [&](const char* member) {
    std::vector<int32_t> ids = generation.ids(member);
    return ids.empty() ? config.ids(member) : ids;
  };
  std::vector<int32_t> out = first_of("decoder_start_token_id");
  if (out.empty()) out = genai.ids("model/decoder_start_token_id");
  if (out.empty()) return out;
  out.resize(1);  // a list is by row of a batch
  for (const ConfigFile* file : {&generation, &config}) {
    const Json* forced = file->find("forced_decoder_ids");
    if (!forced || !forced->is_array()) continue;
    for (const Json& pair : *forced) {
      const bool next = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() && pair[1].is_number_integer() &&
                        pair[0].get<int64_t>() == static_cast<int64_t>(out.size());
      if (!next) return out;
      out.push_back(pair[1].get<int32_t>());
    }
    if (out.size() > 1) return out;
  }
  if (const std::vector<int32_t> forced = first_of("forced_bos_token_id"); !forced.empty()) out.push_back(forced[0]);
  return out;
}

/// What a decoder's inputs of images and sounds are.
void read_inputs(const ConfigFile& config, const ConfigFile& genai, ModelConfig& out) {
  const auto tokens = [&](const std::string& kind) {
    std::vector<int32_t> ids;
    for (const char* member : {"_token_id", "_token_index"})
      for (int32_t id : config.ids(kind + member)) ids.push_back(id);
    if (ids.empty()) ids = genai.ids(cat("model/", kind, "_token_id"));
    for (int32_t id : ids)
      if (std::find(out.input_tokens.begin(), out.input_tokens.end(), id) == out.input_tokens.end()) out.input_tokens.push_back(id);
    return ids;
  };
  out.image_tokens = tokens("image");
  out.audio_tokens = tokens("audio");
  out.video_tokens = tokens("video");
  for (const auto& [file, vision] : {std::pair(&config, std::string("vision_config/")), std::pair(&genai, std::string("model/vision/"))}) {
    if (out.merge <= 0) out.merge = file->get<int64_t>(vision + "spatial_merge_size").value_or(0);
    if (out.tokens_per_second <= 0) out.tokens_per_second = file->get<double>(vision + "tokens_per_second").value_or(0);
  }
  for (const char* member : {"model/vision/filename", "model/speech/filename"})
    if (const auto name = genai.get<std::string>(member)) out.encoder_files.push_back(*name);
}

}  // namespace

ModelConfig read_model_config(const FileSet& files) {
  ConfigFile config(files, "config.json"), generation(files, "generation_config.json"),
      genai(files, "genai_config.json");
  ModelConfig out;
  out.genai_file = genai.get<std::string>("model/decoder/filename").value_or("");
  out.encoder_file = genai.get<std::string>("model/encoder/filename").value_or("");
  const std::pair<const ConfigFile*, const char*> contexts[] = {{&config, "max_target_positions"},
                                                                {&config, "max_position_embeddings"},
                                                                {&config, "text_config/max_position_embeddings"},
                                                                {&config, "n_positions"},
                                                                {&genai, "model/context_length"}};
  for (auto [file, member] : contexts) {
    if (out.context <= 0) out.context = file->get<int64_t>(member).value_or(0);
  }
  for (const char* member : {"max_source_positions", "max_position_embeddings"})
    if (out.encoder_context <= 0) out.encoder_context = config.get<int64_t>(member).value_or(0);
  out.decoder_tokens = decoder_tokens(config, generation, genai);
  const std::pair<const ConfigFile*, const char*> eos[] = {{&generation, "eos_token_id"},
                                                           {&genai, "model/eos_token_id"},
                                                           {&config, "eos_token_id"},
                                                           {&config, "text_config/eos_token_id"}};
  for (auto [file, member] : eos) {
    if (out.eos_tokens.empty()) out.eos_tokens = file->ids(member);
  }
  read_inputs(config, genai, out);
  out.embeddings_file = genai.get<std::string>("model/embedding/filename").value_or("");
  out.request_defaults = request_defaults(generation, config);
  return out;
}

}  // namespace plait

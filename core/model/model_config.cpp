#include "core/model/model_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

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
  std::vector<std::string> keys() const {
    std::vector<std::string> out;
    for (const auto& [key, value] : json_.items()) out.push_back(key);
    return out;
  }
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

/// The token of [id], as lists of words have it; -1 of longer ones.
int32_t only_token(const Json& word) {
  const bool one = word.is_array() && word.size() == 1 && word[0].is_number_integer();
  return one && word[0] >= 0 && word[0] <= INT32_MAX ? word[0].get<int32_t>() : -1;
}

/// Words that are a token each: they are never chosen.
std::vector<std::string> bad_tokens(const ConfigFile& file) {
  std::vector<std::string> out;
  const Json* words = file.find("bad_words_ids");
  for (const Json& word : words && words->is_array() ? *words : Json::array())
    if (const int32_t id = only_token(word); id >= 0) out.push_back(cat(id));
  return out;
}

/// Fields by which transformers chooses other tokens and that are not taken, with the values of its class, which ask for nothing.
struct NotTaken {
  const char *name, *usual;
};
constexpr NotTaken not_taken[] = {{"constraints", "null"},
                                  {"diversity_penalty", "0.0"},
                                  {"dola_layers", "null"},
                                  {"encoder_no_repeat_ngram_size", "0"},
                                  {"encoder_repetition_penalty", "1.0"},
                                  {"epsilon_cutoff", "0.0"},
                                  {"eta_cutoff", "0.0"},
                                  {"exponential_decay_length_penalty", "null"},
                                  {"force_words_ids", "null"},
                                  {"forced_eos_token_id", "null"},
                                  {"guidance_scale", "1.0"},
                                  {"no_repeat_ngram_size", "0"},
                                  {"num_beam_groups", "1"},
                                  {"num_beams", "1"},
                                  {"penalty_alpha", "0.0"},
                                  {"token_healing", "false"},
                                  {"typical_p", "1.0"},
                                  {"watermarking_config", "null"}};
/// Those that are taken here or elsewhere, and those that choose no tokens.
constexpr std::string_view taken[] = {
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens", "min_new_tokens",
    "suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias", "stop_strings", "eos_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_decoder_ids"};
constexpr std::string_view harmless[] = {
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind", "bos_token_id", "cache_config",
    "cache_implementation", "chat_format", "compile_config", "disable_compile", "early_stopping", "is_assistant",
    "length_penalty", "low_memory", "max_length", "max_matching_ngram_size", "max_time", "min_length",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "pad_token_id", "prefill_chunk_size",
    "prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits", "return_dict_in_generate",
    "return_legacy_cache", "target_lookbehind", "transformers_version", "use_cache",
    // Whisper's, of its own loop of generation.
    "alignment_heads", "is_multilingual", "lang_to_id", "language", "max_initial_timestamp_index",
    "no_timestamps_token_id", "prev_sot_token_id", "return_timestamps", "task", "task_to_id", "median_filter_width"};

/// What a file has that changes tokens in transformers and not here. `whole`: the file is for generation only.
std::vector<std::string> left_aside(const ConfigFile& file, bool whole) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& key, const std::string& why) {
    out.push_back(cat(quote(file.path()), ": ", key, why));
  };
  for (const NotTaken& one : not_taken)
    if (const Json* value = file.find(one.name))
      if (*value != Json::parse(one.usual) && !(value->is_number() && *value == Json(0)) && !(value->is_array() && value->empty()))
        add(one.name, cat(" is ", quote(value->dump()), ", which is not supported: tokens are chosen without it"));
  for (const char* list : {"bad_words_ids", "sequence_bias"})
    if (const Json* words = file.find(list))
      for (const Json& word : *words)
        if (only_token(list[0] == 's' && word.is_array() && !word.empty() ? word[0] : word) < 0) {
          add(list, " has words of several tokens, which are not supported: those of one are taken");
          break;
        }
  if (!whole) return out;
  std::vector<std::string> unknown;
  for (const std::string& key : file.keys()) {
    bool known = key.starts_with('_');
    for (const NotTaken& one : not_taken) known = known || key == one.name;
    for (const std::span<const std::string_view> table : {std::span<const std::string_view>(taken), {harmless}})
      known = known || std::find(table.begin(), table.end(), key) != table.end();
    if (!known) unknown.push_back(key);
  }
  if (!unknown.empty()) add(join(unknown, ", "), unknown.size() > 1 ? " are not known" : " is not known");
  return out;
}

std::vector<RequestDefault> request_defaults(const ConfigFile& own, const ConfigFile& config) {
  // As in transformers: without a file for generation these are fields of the configuration.
  const ConfigFile& generation = own.present() ? own : config;
  std::vector<RequestDefault> out;
  for (const char* key : {"suppress_tokens", "begin_suppress_tokens"})
    for (const ConfigFile* file : {&own, &config}) {
      std::vector<std::string> ids;
      for (int32_t id : file->ids(key))
        if (id >= 0) ids.push_back(cat(id));
      if (key[0] == 's')
        for (std::string& id : bad_tokens(*file)) ids.push_back(std::move(id));
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
  if (const Json* stops = generation.find("stop_strings"))
    for (const Json& stop : stops->is_array() ? *stops : Json::array({*stops}))
      if (stop.is_string()) out.push_back({"stop", stop.get<std::string>(), cat(quote(generation.path()), ", field stop_strings")});
  if (const Json* biases = generation.find("sequence_bias")) {
    std::vector<std::string> list;
    for (const Json& one : *biases)
      if (one.is_array() && one.size() == 2 && only_token(one[0]) >= 0 && one[1].is_number())
        list.push_back(cat(only_token(one[0]), ":", one[1].get<double>()));
    if (!list.empty())
      out.push_back({"logit_bias", join(list, ","), cat(quote(generation.path()), ", field sequence_bias")});
  }
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
  out.warnings = generation.present() ? left_aside(generation, true) : left_aside(config, false);
  return out;
}

}  // namespace plait

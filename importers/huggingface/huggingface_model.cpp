#include "importers/huggingface/huggingface_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "importers/huggingface/config.h"
#include "importers/huggingface/config_fields.h"

namespace plait::huggingface {
namespace {

namespace fs = std::filesystem;
using decoder::Weight;

constexpr const char *whole_file = "model.safetensors", *index_file = "model.safetensors.index.json";

nlohmann::json json_of(const std::string& directory, const char* name) {
  nlohmann::json out = nlohmann::json::parse(read_text_file(directory + "/" + name), nullptr, false);
  if (out.is_discarded()) throw Error(Code::bad_model, cat(name, " is no JSON"));
  return out;
}

std::vector<std::string> weight_files(const std::string& directory) {
  if (exists(directory + "/" + whole_file)) return {whole_file};
  std::vector<std::string> out;
  if (exists(directory + "/" + index_file)) {
    const nlohmann::json index = json_of(directory, index_file);
    const auto map = index.find("weight_map");
    if (!index.is_object() || map == index.end() || !map->is_object())
      throw Error(Code::bad_model, cat(index_file, " has no weight_map"));
    for (const auto& [weight, file] : map->items()) {
      if (!file.is_string() || fs::path(std::string(file)).filename() != std::string(file))
        throw Error(Code::bad_model, cat(index_file, ": the file of ", quote(weight), " is no name of a file"));
      out.push_back(file);
    }
  } else {
    for (std::string& name : names_in(directory))
      // Adapters, and a second copy of the weights in the names of Mistral's own programs.
      if (fs::path(name).extension() == ".safetensors" && !name.starts_with("adapter_") && !name.starts_with("consolidated"))
        out.push_back(std::move(name));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// All weights of the directory's files, by name.
class Files {
 public:
  explicit Files(const std::string& directory) {
    const std::vector<std::string> names = weight_files(directory);
    for (const std::string& name : names) {
      if (!exists(directory + "/" + name))
        throw Error(Code::not_found, cat(index_file, " names the file ", quote(name), ", which is not there"),
                    "download it, too");
      files_.push_back(SafeTensors::open(directory + "/" + name));
    }
    for (size_t i = 0; i < files_.size(); ++i)
      for (const auto& [name, entry] : files_[i].entries())
        if (!where_.emplace(name, &files_[i]).second)
          throw Error(Code::bad_model, cat("the weight ", name, " is in several files, such as ", quote(names[i])),
                      "delete those of another version of the model");
  }
  int64_t count() const { return static_cast<int64_t>(where_.size()); }
  std::optional<Tensor> find(const std::string& name) const {
    const auto found = where_.find(name);
    if (found == where_.end()) return std::nullopt;
    read_.insert(name);
    Tensor out = found->second->tensor(name);
    if (!is_float(out.dtype()) || out.dtype() == DType::f64)
      throw Error(Code::unsupported, cat("the weight ", name, " is ", dtype_name(out.dtype())),
                  "weights are f32, f16 or bf16; quantised ones can be exported to ONNX");
    return out;
  }
  /// Those that nothing asked for, but for what old versions of transformers kept with the weights.
  std::vector<std::string> unread() const {
    std::vector<std::string> out;
    for (const auto& [name, file] : where_)
      if (!read_.contains(name) && !name.ends_with("rotary_emb.inv_freq") && !name.ends_with("attn.bias") &&
          !name.ends_with("attn.masked_bias") && !name.ends_with("attention.bias") &&
          !name.ends_with("attention.masked_bias"))
        out.push_back(name);
    return out;
  }

 private:
  std::vector<SafeTensors> files_;
  std::map<std::string, const SafeTensors*> where_;
  mutable std::set<std::string> read_;
};

/// Copies `count` outputs of a fused weight, of which each is `row(i)`; weights [k, n] if `inputs_first`.
template <class Row>
Tensor copied(const Tensor& from, int64_t count, bool inputs_first, Row row) {
  const int64_t size = dtype_bits(from.dtype()) / 8;
  std::vector<int64_t> sizes(from.shape().begin(), from.shape().end());
  const bool matrix = sizes.size() == 2;
  const int64_t outputs = matrix && inputs_first ? sizes[1] : sizes[0],
                inputs = matrix ? (inputs_first ? sizes[0] : sizes[1]) : 1;
  if (matrix && inputs_first) sizes[1] = count;
  else sizes[0] = count;
  Tensor out(from.dtype(), Shape(sizes));
  for (int64_t i = 0; i < count; ++i) {
    if (!matrix || !inputs_first) {
      std::memcpy(out.data() + i * inputs * size, from.data() + row(i) * inputs * size,
                  static_cast<size_t>(inputs * size));
      continue;
    }
    for (int64_t k = 0; k < inputs; ++k)
      std::memcpy(out.data() + (k * count + i) * size, from.data() + (k * outputs + row(i)) * size,
                  static_cast<size_t>(size));
  }
  return out;
}

Weight read(const Tensor& whole, const Part& part, const decoder::DecoderSpec& spec) {
  Weight out{.tensor = whole, .inputs_first = part.inputs_first && whole.shape().rank() == 2};
  if (!part.count) return out;
  if (whole.shape().rank() < 1 || whole.shape()[out.inputs_first ? 1 : 0] != part.all)
    throw Error(Code::bad_model,
                cat("the weight ", part.name, " is ", whole.shape().text(), ", expected ", part.all, " outputs"),
                "config.json is of another model");
  if (part.by_head)
    out.tensor = copied(whole, part.count, false, [&](int64_t i) {
      return (i / spec.head_dim * 3 + part.begin) * spec.head_dim + i % spec.head_dim;
    });
  else if (out.inputs_first || whole.shape().rank() != 2)
    out.tensor = copied(whole, part.count, out.inputs_first, [&](int64_t i) { return part.begin + i; });
  else {
    // Rows follow each other: a view.
    const int64_t k = whole.shape()[1], row = k * dtype_bits(whole.dtype()) / 8;
    out.tensor = Tensor(whole.dtype(), Shape{part.count, k}, whole.blob(),
                        whole.data() - whole.blob()->data() + part.begin * row);
  }
  return out;
}

/// Whether the file's head is a matrix of its own.
bool has_own_head(const Files& files, const Model& model) {
  const auto find = [&](const char* name) {
    std::optional<Tensor> out;
    for (const Part& part : model.parts_of(name))
      if (!out) out = files.find(part.name);
    return out;
  };
  const std::optional<Tensor> head = find("lm_head.weight"), table = find("model.embed_tokens.weight");
  if (!head || !table || head->blob() == nullptr) return false;
  return head->dtype() != table->dtype() || head->shape() != table->shape() ||
         std::memcmp(head->data(), table->data(),
                     static_cast<size_t>(head->elements() * dtype_bits(head->dtype()) / 8)) != 0;
}

/// The first few of a list, for a message.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t most = 8;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(most, names.size())));
  return cat(join(first, ", "), names.size() > most ? cat(" and ", names.size() - most, " more") : "");
}

}  // namespace

bool has_model(const std::string& directory) {
  return exists(directory + "/config.json") && !weight_files(directory).empty();
}

std::vector<NamedBlob> text_files(const std::string& directory) {
  std::vector<NamedBlob> out;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "chat_template.json", "special_tokens_map.json",
                           "additional_chat_templates/tool_use.jinja"})
    if (const std::string path = directory + "/" + name; exists(path)) out.push_back({name, map_file(path)});
  const std::string config =
      with_defaults(json_of(directory, "config.json"), exists(directory + "/generation_config.json")).dump();
  out.front().blob = copy_blob(std::as_bytes(std::span(config)));
  return out;
}

std::vector<NamedBlob> model_files(const std::string& directory, LoadProgress* progress,
                                   std::vector<std::string>* warnings) {
  Model model = read_config(json_of(directory, "config.json"));
  const Files files(directory);
  const auto warn = [&](std::string text) {
    if (warnings) warnings->push_back(std::move(text));
  };
  if (!model.ignored.empty())
    warn(cat("config.json: fields that transformers does not know either, without effect: ", some_of(model.ignored)));
  if (model.spec.tied && has_own_head(files, model)) {
    model.spec.tied = false;
    warn("config.json: tie_word_embeddings is true, and the weights have a head of their own, which is taken");
  }
  if (progress) progress->stage(0.9, files.count());  // the graph's part comes after it
  std::map<std::string, std::optional<Weight>> made;
  std::vector<std::string> without;
  const auto weights = [&](const std::string& name) {
    const auto [found, fresh] = made.try_emplace(name);
    if (!fresh) return found->second;
    const bool bias = name.ends_with(".bias");
    if (bias && !model.has_bias(name.substr(0, name.size() - 5))) return found->second;
    for (const Part& part : model.parts_of(name))
      if (const std::optional<Tensor> whole = files.find(part.name)) {
        if (progress) progress->advance();
        return found->second = read(*whole, part, model.spec);
      }
    if (bias) without.push_back(name);
    return found->second;
  };
  std::vector<NamedBlob> out = decoder::write_decoder(model.spec, weights);
  if (!without.empty()) warn(cat("weights that the files do not have, taken as zero: ", some_of(without)));
  if (const std::vector<std::string> unread = files.unread(); !unread.empty())
    warn(cat("weights that the model does not use: ", some_of(unread)));
  for (NamedBlob& one : text_files(directory)) out.push_back(std::move(one));
  return out;
}

}  // namespace plait::huggingface

#include "importers/huggingface/huggingface_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "importers/huggingface/config.h"

namespace plait::huggingface {
namespace {

namespace fs = std::filesystem;
using decoder::Weight;

std::vector<std::string> weight_files(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end; at.increment(failure))
    if (at->path().extension() == ".safetensors") out.push_back(at->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// All weights of the directory's files, by name.
class Files {
 public:
  explicit Files(const std::string& directory) {
    for (const std::string& name : weight_files(directory))
      files_.push_back(SafeTensors::open(directory + "/" + name));
    for (const SafeTensors& file : files_)
      for (const auto& [name, entry] : file.entries()) where_.emplace(name, &file);
  }
  int64_t count() const { return static_cast<int64_t>(where_.size()); }
  std::optional<Tensor> find(const std::string& name) const {
    const auto found = where_.find(name);
    if (found == where_.end()) return std::nullopt;
    Tensor out = found->second->tensor(name);
    if (!is_float(out.dtype()) || out.dtype() == DType::f64)
      throw Error(Code::unsupported, cat("the weight ", name, " is ", dtype_name(out.dtype())),
                  "weights are f32, f16 or bf16; quantised ones can be exported to ONNX");
    return out;
  }

 private:
  std::vector<SafeTensors> files_;
  std::map<std::string, const SafeTensors*> where_;
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
    if (row(i) >= outputs)
      throw Error(Code::bad_model, cat("a fused weight has ", outputs, " outputs, expected more"),
                  "config.json is of another model");
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
  if (part.by_head)
    out.tensor = copied(whole, part.count, false, [&](int64_t i) {
      return (i / spec.head_dim * 3 + part.begin) * spec.head_dim + i % spec.head_dim;
    });
  else if (out.inputs_first || whole.shape().rank() != 2)
    out.tensor = copied(whole, part.count, out.inputs_first, [&](int64_t i) { return part.begin + i; });
  else {
    // Rows follow each other: a view.
    const int64_t k = whole.shape()[1], row = k * dtype_bits(whole.dtype()) / 8;
    if (part.begin + part.count > whole.shape()[0])
      throw Error(Code::bad_model, cat("the weight ", part.name, " is ", whole.shape().text()),
                  "config.json is of another model");
    out.tensor = Tensor(whole.dtype(), Shape{part.count, k}, whole.blob(),
                        whole.data() - whole.blob()->data() + part.begin * row);
  }
  return out;
}

nlohmann::json config_of(const std::string& directory) {
  nlohmann::json out = nlohmann::json::parse(read_text_file(directory + "/config.json"), nullptr, false);
  if (out.is_discarded()) throw Error(Code::bad_model, "config.json is no JSON");
  // Of a model with more than text, the part for text.
  if (out.is_object() && out.contains("text_config") && out.at("text_config").is_object())
    return out.at("text_config");
  return out;
}

}  // namespace

bool has_model(const std::string& directory) {
  std::error_code failure;
  return fs::exists(directory + "/config.json", failure) && !weight_files(directory).empty();
}

std::vector<NamedBlob> text_files(const std::string& directory) {
  std::vector<NamedBlob> out;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "chat_template.json", "special_tokens_map.json"}) {
    std::error_code failure;
    if (const std::string path = directory + "/" + name; fs::exists(path, failure))
      out.push_back({name, map_file(path)});
  }
  return out;
}

std::vector<NamedBlob> model_files(const std::string& directory, LoadProgress* progress) {
  const Model model = read_config(config_of(directory));
  const Files files(directory);
  if (progress) progress->stage(0.9, files.count());  // the graph's part comes after it
  std::map<std::string, std::optional<Weight>> made;
  const auto weights = [&](const std::string& name) {
    const auto [found, fresh] = made.try_emplace(name);
    if (!fresh) return found->second;
    for (const Part& part : model.parts_of(name))
      if (const std::optional<Tensor> whole = files.find(part.name)) {
        if (progress) progress->advance();
        return found->second = read(*whole, part, model.spec);
      }
    return found->second;
  };
  std::vector<NamedBlob> out = decoder::write_decoder(model.spec, weights);
  for (NamedBlob& one : text_files(directory)) out.push_back(std::move(one));
  return out;
}

}  // namespace plait::huggingface

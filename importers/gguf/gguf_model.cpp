#include "importers/gguf/gguf_model.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/decoder/weight_forms.h"
#include "importers/gguf/architectures.h"
#include "importers/gguf/blocks.h"
#include "importers/gguf/tokenizer.h"

namespace plait::gguf {
namespace {

using decoder::DecoderSpec;
using decoder::Weight;

NamedBlob text_file(std::string name, const std::string& text) {
  return {std::move(name), copy_blob(std::as_bytes(std::span(text)))};
}

/// Rows [begin, begin + count) of an array of rows.
Entry rows_of(const Entry& entry, int64_t begin, int64_t count) {
  const int64_t rows = entry.shape.rank() ? entry.shape[0] : 0;
  if (begin + count > rows)
    throw Error(Code::bad_model, cat("a fused weight has ", rows, " rows, expected at least ", begin + count));
  Entry out = entry;
  std::vector<int64_t> sizes(entry.shape.begin(), entry.shape.end());
  sizes[0] = count;
  out.shape = Shape(sizes);
  out.offset += entry.bytes / rows * begin;
  out.bytes = entry.bytes / rows * count;
  return out;
}

/// Quantised elements as floats of that type.
Tensor unpacked(const Entry& entry, DType dtype) {
  const Tensor wide = dequantised(entry);
  if (dtype == DType::f32) return wide;
  Tensor out(dtype, entry.shape);
  const auto* from = reinterpret_cast<const float*>(wide.data());
  for (int64_t i = 0; i < wide.elements(); ++i) {
    const uint16_t bits = dtype == DType::f16 ? to_float16(from[i]).bits : to_bfloat16(from[i]).bits;
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

/// The weights by the names of decoder::Weights. Each is read once.
class GgufWeights {
 public:
  GgufWeights(const File& file, const DecoderSpec& spec, DType unpack, LoadProgress* progress)
      : file_(file), spec_(spec), unpack_(unpack), progress_(progress) {
    // The graph's part comes after it.
    if (progress_) progress_->stage(0.9, static_cast<int64_t>(file_.tensors().size()));
  }

  std::optional<Weight> operator()(const std::string& name) {
    if (const auto made = made_.find(name); made != made_.end()) return made->second;
    const std::optional<Entry> entry = find(name);
    std::optional<Weight> out;
    if (entry) out = weight(name, *entry);
    if (entry && progress_) progress_->advance();
    return made_[name] = out;
  }

 private:
  const Entry* tensor(const std::string& name) const {
    const auto found = file_.tensors().find(name);
    return found == file_.tensors().end() ? nullptr : &found->second;
  }

  std::optional<Entry> find(const std::string& name) const {
    if (name.find(".mlp.experts.") != std::string::npos) return expert(name);
    constexpr std::string_view after = "post_attention_layernorm";
    std::string theirs = tensor_of(name);
    if (const size_t at = name.find(after); at != std::string::npos)
      theirs = cat("blk.", name.substr(13, at - 14), spec_.post_norms ? ".post_attention_norm" : ".ffn_norm",
                   name.substr(at + after.size()));
    if (theirs.empty()) return std::nullopt;
    if (const Entry* whole = tensor(theirs)) {
      if (whole->shape.rank() == 1 && name.ends_with("shared_expert_gate.weight")) {
        Entry row = *whole;
        row.shape = Shape{1, whole->shape[0]};
        return row;
      }
      const bool fused = name.find("mlp.up_proj") != std::string::npos && spec_.gated && whole->shape.rank() &&
                         whole->shape[0] == 2 * spec_.ffn;
      return fused ? rows_of(*whole, spec_.ffn, spec_.ffn) : *whole;
    }
    return part(name);
  }

  /// model.layers.0.mlp.experts.3.up_proj.weight: number 3 of a stack, or in old files a tensor of its own.
  std::optional<Entry> expert(const std::string& name) const {
    const auto field = [&](size_t at) { return name.substr(at, name.find('.', at) - at); };
    const size_t layer = name.find("layers.") + 7, number = name.find(".experts.") + 9;
    const std::string index = field(number), kind = field(number + index.size() + 1);
    const std::string begin = cat("blk.", field(layer), ".ffn_", kind.substr(0, kind.find("_proj")));
    if (const Entry* own = tensor(cat(begin, ".", index, ".weight"))) return *own;
    const Entry* stack = tensor(begin + "_exps.weight");
    if (!stack || stack->shape.rank() != 3) return std::nullopt;
    int64_t at = 0;
    parse_int(index, at);
    Entry out = rows_of(*stack, at, 1);
    out.shape = Shape{stack->shape[1], stack->shape[2]};
    return out;
  }

  /// A part of a fused weight: query, key and value; gate and up.
  std::optional<Entry> part(const std::string& name) const {
    const int64_t wide = spec_.heads * spec_.head_dim, narrow = spec_.kv_heads * spec_.head_dim;
    struct Part {
      const char *name, *fused;
      int64_t begin, count;
    };
    for (const Part& one :
         {Part{"self_attn.q_proj", "attn_qkv", 0, wide}, Part{"self_attn.k_proj", "attn_qkv", wide, narrow},
          Part{"self_attn.v_proj", "attn_qkv", wide + narrow, narrow},
          Part{"mlp.gate_proj", "ffn_up", 0, spec_.ffn}}) {
      const size_t at = name.find(one.name);
      if (at == std::string::npos) continue;
      const Entry* whole =
          tensor(cat("blk.", name.substr(13, at - 13), one.fused, name.substr(at + std::strlen(one.name))));
      if (whole) return rows_of(*whole, one.begin, one.count);
    }
    return std::nullopt;
  }

  Weight weight(const std::string& name, const Entry& entry) const {
    if (form_of(entry.type, name).elements > 1 && unpack_ != DType::none) return {.tensor = unpacked(entry, unpack_)};
    Weight out = weight_of(entry);
    // Rows of a table are looked up, for which ONNX knows codes with whole zero points only.
    if (out.blocks && out.blocks->zeros && name.find("embed_") != std::string::npos &&
        !decoder::packed_zeros(*out.blocks))
      return {.tensor = unpacked(entry, DType::f16)};
    return out;
  }

  const File& file_;
  const DecoderSpec& spec_;
  const DType unpack_;
  LoadProgress* const progress_;
  std::map<std::string, std::optional<Weight>> made_;
};

std::string config_of(const File& file, const DecoderSpec& spec) {
  return nlohmann::json{{"model_type", file.text("general.architecture")},
                        {"vocab_size", spec.vocabulary},
                        {"hidden_size", spec.hidden},
                        {"num_hidden_layers", spec.layers()},
                        {"num_attention_heads", spec.heads},
                        {"num_key_value_heads", spec.kv_heads},
                        {"head_dim", spec.head_dim},
                        {"max_position_embeddings", spec.context}}
      .dump();
}

std::vector<NamedBlob> text_files_of(const File& file, const DecoderSpec& spec) {
  std::vector<NamedBlob> out{text_file("config.json", config_of(file, spec))};
  if (!file.has("tokenizer.ggml.tokens")) return out;
  const TokenizerFiles text = tokenizer_files(file, spec.context);
  out.push_back(text_file("tokenizer.json", text.tokenizer));
  out.push_back(text_file("tokenizer_config.json", text.config));
  out.push_back(text_file("generation_config.json", text.generation));
  return out;
}

}  // namespace

std::vector<NamedBlob> model_files(const Parts& parts, DType unpack, LoadProgress* progress,
                                   std::vector<std::string>* warnings) {
  const File file(parts);
  const DecoderSpec spec = spec_of(file, warnings);
  std::vector<NamedBlob> out = decoder::write_decoder(spec, GgufWeights(file, spec, unpack, progress));
  for (NamedBlob& one : text_files_of(file, spec)) out.push_back(std::move(one));
  return out;
}

std::vector<NamedBlob> text_files(const Parts& parts) {
  const File file(parts);
  return text_files_of(file, spec_of(file));
}

}  // namespace plait::gguf

// The graph of a decoder that is known by its sizes.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/shape/decoder_shape.h"
#include "importers/decoder/decoder_spec.h"
#include "importers/onnx/import.h"

namespace plait {
namespace {

/// An array of f32 in address space only: a number, then zeros, which take no memory.
class EmptyBlob final : public Blob {
 public:
  EmptyBlob(int64_t bytes, float first) {
    void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      throw Error(Code::out_of_memory, cat("no address space for a weight of ", human_bytes(bytes)));
    data_ = static_cast<std::byte*>(at);
    size_ = bytes;
    *static_cast<float*>(at) = first;
  }
  ~EmptyBlob() override { munmap(data_, static_cast<size_t>(size_)); }
  EmptyBlob(const EmptyBlob&) = delete;
};

decoder::DecoderSpec spec_of(const DecoderShape& shape, int64_t layers) {
  const bool gpt = shape.family == DecoderShape::Family::gpt;
  const auto count = static_cast<size_t>(layers);
  decoder::DecoderSpec out;
  out.hidden = shape.hidden;
  out.heads = shape.heads;
  out.kv_heads = shape.kv_heads;
  out.head_dim = shape.head_size;
  out.ffn = shape.feed_forward;
  out.vocabulary = shape.vocabulary;
  out.context = shape.sequence;
  out.norm = gpt ? decoder::Norm::layer : decoder::Norm::rms;
  out.activation = gpt ? "gelu_tanh" : "silu";
  out.gated = !gpt;
  out.query_scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  out.windows.assign(count, 0);
  out.ropes.assign(count, decoder::Rope{.dims = gpt ? 0 : shape.head_size});
  out.positions = gpt ? shape.sequence : 0;
  out.tied = shape.tied;
  if (!shape.experts) return out;
  out.experts = decoder::Experts{
      .count = shape.experts, .used = shape.experts_used, .ffn = shape.feed_forward, .stacked = true};
  for (int64_t i = 0; i < layers; ++i) out.experts->layers.push_back(i % shape.experts_every == 0);
  return out;
}

/// The sizes of a weight by the last parts of its name; empty: the model has none.
std::vector<int64_t> sizes_of(const DecoderShape& shape, const std::string& name) {
  const bool gpt = shape.family == DecoderShape::Family::gpt;
  const int64_t hidden = shape.hidden, query = shape.heads * shape.head_size, key = shape.kv_heads * shape.head_size;
  const std::map<std::string, std::vector<int64_t>> linears = {{"q_proj", {query, hidden}},
                                                               {"k_proj", {key, hidden}},
                                                               {"v_proj", {key, hidden}},
                                                               {"o_proj", {hidden, query}},
                                                               {"up_proj", {shape.feed_forward, hidden}},
                                                               {"gate_proj", {shape.feed_forward, hidden}},
                                                               {"down_proj", {hidden, shape.feed_forward}},
                                                               {"gate", {shape.experts, hidden}},
                                                               {"lm_head", {shape.vocabulary, hidden}},
                                                               {"embed_tokens", {shape.vocabulary, hidden}},
                                                               {"embed_positions", {shape.sequence, hidden}}};
  const std::vector<std::string> parts = split(name, '.');
  if (parts.size() < 2) return {};
  const std::string &module = parts[parts.size() - 2], &kind = parts.back();
  if (module == "experts" && kind == "gate_up") return {shape.experts, 2 * shape.feed_forward, hidden};
  if (module == "experts" && kind == "down") return {shape.experts, hidden, shape.feed_forward};
  const auto linear = linears.find(module);
  if (kind == "bias") {
    if (!gpt || module == "lm_head") return {};
    return {linear == linears.end() ? hidden : linear->second[0]};
  }
  if (kind != "weight") return {};
  return linear == linears.end() ? std::vector<int64_t>{hidden} : linear->second;  // a norm's
}

}  // namespace

Graph decoder_graph(const DecoderShape& shape, int64_t layers, const OpSet& ops) {
  // Weights differ in their first element: equal ones would be taken for one that a file has twice.
  std::map<std::string, Tensor> made;
  const auto weights = [&](const std::string& name) -> std::optional<decoder::Weight> {
    const std::vector<int64_t> sizes = sizes_of(shape, name);
    if (sizes.empty()) return std::nullopt;
    Tensor& tensor = made[name];
    const int64_t bytes = Shape(sizes).elements() * 4;
    if (!tensor.present())
      tensor = Tensor(DType::f32, Shape(sizes), std::make_shared<EmptyBlob>(bytes, static_cast<float>(made.size())));
    return decoder::Weight{.tensor = tensor};
  };
  const std::vector<NamedBlob> files = decoder::write_decoder(spec_of(shape, layers), weights);
  const auto find = [&](const std::string& location) -> std::shared_ptr<const Blob> {
    for (const NamedBlob& file : files)
      if (file.name == location) return file.blob;
    throw Error(Code::internal, cat("the decoder's file names ", quote(location)));
  };
  return import_bytes(files.front().blob, find, ops).graph;
}

}  // namespace plait

// Decoders from GGUF files: the weights of a fixture, written as such a file, give the fixture's logits; quantised weights give those of
// the numbers that they stand for.
#include "importers/gguf/gguf_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/engines.h"
#include "core/model/model_source.h"
#include "importers/gguf/architectures.h"
#include "importers/gguf/blocks.h"
#include "importers/huggingface/config.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/gguf_writer.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

constexpr uint32_t gpt2_heads = 4;
using Floats = std::vector<float>;

/// The constants of a fixture by name.
class Constants {
 public:
  explicit Constants(const std::string& name) : graph_(fixture_graph(name)) {
    for (ValueId id = 0; id < graph_.value_count(); ++id)
      if (const Tensor* tensor = graph_.constant(id)) tensors_[graph_.value(id).name] = *tensor;
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  Floats vector(const std::string& name) const {
    const Tensor& tensor = tensors_.at(name);
    const auto* first = reinterpret_cast<const float*>(tensor.data());
    return {first, first + tensor.elements()};
  }
  /// [k, n] as [n, k].
  Floats transposed(const std::string& name) const {
    const Shape shape = tensors_.at(name).shape();
    const Floats from = vector(name);
    Floats out(from.size());
    for (int64_t i = 0; i < shape[0]; ++i)
      for (int64_t j = 0; j < shape[1]; ++j)
        out[static_cast<size_t>(j * shape[0] + i)] = from[static_cast<size_t>(i * shape[1] + j)];
    return out;
  }
  std::vector<int64_t> sizes(const std::string& name) const {
    const Shape& shape = tensors_.at(name).shape();
    return {shape.begin(), shape.end()};
  }

 private:
  Graph graph_;
  std::map<std::string, Tensor> tensors_;
};

/// Rows of each head from halves to neighbours, as GGUF files of Llama have query and key.
Floats interleaved(const Floats& rows, int64_t heads, int64_t head_dim, int64_t k) {
  Floats out(rows.size());
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < head_dim; ++i) {
      const int64_t from = head * head_dim + i % 2 * (head_dim / 2) + i / 2, to = head * head_dim + i;
      std::copy_n(rows.begin() + from * k, k, out.begin() + to * k);
    }
  return out;
}

struct Sizes {
  uint32_t hidden, heads, kv_heads, head_dim, ffn, layers, context;
};

void write_sizes(GgufWriter& out, const std::string& name, const Sizes& sizes, float epsilon, bool rms = true) {
  out.text("general.architecture", name);
  out.integer(name + ".embedding_length", sizes.hidden);
  out.integer(name + ".attention.head_count", sizes.heads);
  out.integer(name + ".attention.head_count_kv", sizes.kv_heads);
  out.integer(name + ".attention.key_length", sizes.head_dim);
  out.integer(name + ".feed_forward_length", sizes.ffn);
  out.integer(name + ".block_count", sizes.layers);
  out.integer(name + ".context_length", sizes.context);
  out.real(name + (rms ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon"), epsilon);
}

uint32_t key_heads(const Constants& from, uint32_t head_dim) {
  return static_cast<uint32_t>(from.sizes("model.layers.0.self_attn.k_proj.weight")[1]) / head_dim;
}

/// A fixture in the own form, whose weights are [k, n] under transformers' names.
std::string own_form(const std::string& fixture, const std::string& architecture, uint32_t head_dim, float epsilon,
                     const std::vector<std::pair<const char*, const char*>>& norms, bool interleave,
                     const std::function<void(GgufWriter&)>& more) {
  const Constants from(fixture);
  const auto table = from.sizes("model.embed_tokens.weight");
  Sizes sizes{.hidden = static_cast<uint32_t>(table[1]), .head_dim = head_dim, .context = 512};
  sizes.heads = static_cast<uint32_t>(from.sizes("model.layers.0.self_attn.q_proj.weight")[1]) / head_dim;
  sizes.kv_heads = key_heads(from, head_dim);
  sizes.ffn = static_cast<uint32_t>(from.sizes("model.layers.0.mlp.up_proj.weight")[1]);
  while (from.has(cat("model.layers.", sizes.layers, ".mlp.up_proj.weight"))) ++sizes.layers;
  GgufWriter out;
  write_sizes(out, architecture, sizes, epsilon);
  more(out);
  out.floats("token_embd.weight", table, from.vector("model.embed_tokens.weight"));
  out.floats("output_norm.weight", {sizes.hidden}, from.vector("model.norm.weight"));
  for (uint32_t layer = 0; layer < sizes.layers; ++layer) {
    const std::string ours = cat("model.layers.", layer, "."), theirs = cat("blk.", layer, ".");
    for (const auto& [name, norm] : norms) {
      Floats values = from.vector(ours + name + ".weight");
      // The fixture's scale of queries is no root of a head's size, as that of these files is.
      if (std::string(norm) == "attn_q_norm")
        for (float& one : values) one *= std::sqrt(16.0F / 24.0F);
      out.floats(theirs + norm + ".weight", from.sizes(ours + name + ".weight"), values);
    }
    for (const auto& [name, linear] :
         std::vector<std::pair<const char*, const char*>>{{"self_attn.q_proj", "attn_q"},
                                                          {"self_attn.k_proj", "attn_k"},
                                                          {"self_attn.v_proj", "attn_v"},
                                                          {"self_attn.o_proj", "attn_output"},
                                                          {"mlp.gate_proj", "ffn_gate"},
                                                          {"mlp.up_proj", "ffn_up"},
                                                          {"mlp.down_proj", "ffn_down"}}) {
      const auto shape = from.sizes(ours + name + ".weight");
      Floats rows = from.transposed(ours + name + ".weight");
      const bool turned = interleave && (std::string(linear) == "attn_q" || std::string(linear) == "attn_k");
      if (turned) rows = interleaved(rows, shape[1] / head_dim, head_dim, shape[0]);
      out.floats(theirs + linear + ".weight", {shape[1], shape[0]}, rows);
    }
  }
  return out.bytes();
}

std::shared_ptr<Blob> blob_of(const std::string& bytes) { return copy_blob(std::as_bytes(std::span(bytes))); }

Graph graph_of(const std::string& file) {
  return import_model(find_model(gguf::model_files({blob_of(file)})), World::get().ops).graph;
}

Floats logits_of(const Graph& graph, int32_t vocabulary = 256) {
  auto engine = make_engine(graph, World::get().options(DType::f32), small_engine());
  EXPECT_TRUE(engine->decoder().recognised) << engine->decoder().why_not;
  std::vector<int32_t> ids = some_ids(45);
  for (int32_t& id : ids) id %= vocabulary;
  return logits(*engine, ids, nullptr, 24);
}

TEST(Gguf, ALlamaGivesTheFixturesLogits) {
  const std::string fixture = "llama-standard23";
  const std::string file = own_form(fixture, "llama", 16, 1e-5F,
                                    {{"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"}},
                                    true, [](GgufWriter& out) { out.real("llama.rope.freq_base", 10000); });
  EXPECT_LT(relative_error(logits_of(graph_of(file)), logits_of(fixture_graph(fixture))), 1e-5);
}

const std::vector<std::pair<const char*, const char*>> llama_norms{{"input_layernorm", "attn_norm"},
                                                                   {"post_attention_layernorm", "ffn_norm"}};

/// NAME-00001-of-00002.gguf and so on, as llama.cpp splits files: metadata in the first, tensors in all.
TEST(Gguf, PartsOfASplitFileAreOneModel) {
  const std::string fixture = "llama-standard23", folder = testing::TempDir() + "/gguf_parts";
  const Constants from(fixture);
  Floats head = from.vector("model.embed_tokens.weight");
  for (float& one : head) one *= 2;
  const auto split = [](GgufWriter& out, uint32_t number) {
    out.integer("split.no", number), out.integer("split.count", 2);
  };
  const std::string first =
      own_form(fixture, "llama", 16, 1e-5F, llama_norms, true, [&](GgufWriter& out) { split(out, 0); });
  GgufWriter second;
  split(second, 1);
  second.floats("output.weight", from.sizes("model.embed_tokens.weight"), head);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string begin = folder + "/tiny-0000", end = "-of-00002.gguf";
  std::ofstream(begin + "1" + end, std::ios::binary) << first;
  EXPECT_THROW(find_model(folder, false), Error);
  std::ofstream(begin + "2" + end, std::ios::binary) << second.bytes();
  Floats expected = logits_of(fixture_graph(fixture));
  for (float& one : expected) one *= 2;
  for (const std::string& path : {folder, begin + "1" + end, begin + "2" + end})
    EXPECT_LT(relative_error(logits_of(import_model(find_model(path, false), World::get().ops).graph), expected),
              1e-5);
  // Parts in the other's place.
  std::filesystem::rename(begin + "2" + end, folder + "/kept");
  std::filesystem::copy(begin + "1" + end, begin + "2" + end);
  EXPECT_THROW(find_model(folder, false), Error);
  std::filesystem::remove_all(folder);
}

TEST(Gguf, KeysThatChangeResultsAreTakenOrNamed) {
  const auto spec_with = [](const std::function<void(GgufWriter&)>& more, std::vector<std::string>* warnings) {
    const std::string file = own_form("llama-standard23", "llama", 16, 1e-5F, llama_norms, true, more);
    return gguf::spec_of(gguf::File(blob_of(file)), warnings);
  };
  const auto message = [&](const std::string& key, float value) {
    try {
      spec_with([&](GgufWriter& out) { out.real(key, value); }, nullptr);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  for (const char* key : {"llama.logit_scale", "llama.attention.clamp_kqv", "llama.residual_scale",
                          "llama.embedding_scale", "llama.attention.max_alibi_bias", "llama.expert_weights_scale"}) {
    EXPECT_NE(message(key, 2.5F).find(key), std::string::npos);
    EXPECT_EQ(message(key, 0), "");
  }
  std::vector<std::string> warnings;
  spec_with([](GgufWriter& out) { out.real("llama.made_up", 3), out.integer("llama.vocab_size", 256); }, &warnings);
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_NE(warnings[0].find("llama.made_up"), std::string::npos);
  // YaRN as transformers has it (HuggingFaceFields); a factor without a kind is linear.
  const auto rope = spec_with(
                        [](GgufWriter& out) {
                          out.text("llama.rope.scaling.type", "yarn"), out.real("llama.rope.scaling.factor", 4);
                          out.integer("llama.rope.scaling.original_context_length", 32);
                        },
                        nullptr)
                        .ropes[0];
  const auto same = huggingface::read_config(nlohmann::json::parse(R"({"model_type": "llama", "head_dim": 16,
      "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}})"))
                        .spec.ropes[0];
  EXPECT_EQ(rope.factors, same.factors);
  EXPECT_EQ(rope.amplitude, same.amplitude);
  EXPECT_EQ(spec_with([](GgufWriter& out) { out.real("llama.rope.scaling.factor", 4); }, nullptr).ropes[0].factor, 4);
}

TEST(Gguf, AGemmaGivesTheFixturesLogits) {
  const std::string fixture = "gemma3-standard23";
  const std::string file = own_form(fixture, "gemma3", 16, 1e-6F,
                                    {{"input_layernorm", "attn_norm"},
                                     {"post_attention_layernorm", "post_attention_norm"},
                                     {"pre_feedforward_layernorm", "ffn_norm"},
                                     {"post_feedforward_layernorm", "post_ffw_norm"},
                                     {"self_attn.q_norm", "attn_q_norm"},
                                     {"self_attn.k_norm", "attn_k_norm"}},
                                    false, [](GgufWriter& out) {
                                      out.real("gemma3.rope.freq_base", 1000000);
                                      out.integer("gemma3.attention.sliding_window", 8);
                                      out.integer("gemma3.attention.sliding_window_pattern", 3);
                                    });
  EXPECT_LT(relative_error(logits_of(graph_of(file)), logits_of(fixture_graph(fixture))), 1e-5);
}

TEST(Gguf, AGpt2GivesTheFixturesLogits) {
  const std::string fixture = "zoo/gpt2_upcast/dynamo18_eager";
  const Constants from(fixture);
  const std::string model = "model.transformer.";
  const auto positions = from.sizes(model + "wpe.weight");
  Sizes sizes{.hidden = static_cast<uint32_t>(positions[1]), .context = static_cast<uint32_t>(positions[0])};
  sizes.ffn = static_cast<uint32_t>(from.sizes(model + "h.0.mlp.c_fc.bias")[0]);
  while (from.has(cat(model, "h.", sizes.layers, ".ln_1.bias"))) ++sizes.layers;
  sizes.heads = sizes.kv_heads = gpt2_heads, sizes.head_dim = sizes.hidden / gpt2_heads;
  GgufWriter out;
  write_sizes(out, "gpt2", sizes, 1e-5F, false);
  const auto vector = [&](const std::string& theirs, const std::string& ours) {
    out.floats(theirs, from.sizes(model + ours), from.vector(model + ours));
  };
  const auto matrix = [&](const std::string& theirs, const std::string& ours) {
    const auto shape = from.sizes(model + ours);
    out.floats(theirs, {shape[1], shape[0]}, from.transposed(model + ours));
  };
  vector("position_embd.weight", "wpe.weight");
  const std::string table = from.has("model.lm_head.weight") ? "model.lm_head.weight" : model + "wte.weight";
  out.floats("token_embd.weight", from.sizes(table), from.vector(table));
  for (const char* kind : {".weight", ".bias"}) vector(cat("output_norm", kind), cat("ln_f", kind));
  for (uint32_t layer = 0; layer < sizes.layers; ++layer) {
    const std::string ours = cat("h.", layer, "."), theirs = cat("blk.", layer, ".");
    for (const char* kind : {".weight", ".bias"}) {
      vector(cat(theirs, "attn_norm", kind), cat(ours, "ln_1", kind));
      vector(cat(theirs, "ffn_norm", kind), cat(ours, "ln_2", kind));
    }
    // The fixture divides the scores of each layer by its number, which these files cannot: its queries are divided.
    Floats weight = from.transposed(cat(model, ours, "attn.c_attn.weight")),
           bias = from.vector(cat(model, ours, "attn.c_attn.bias"));
    for (uint32_t row = 0; row < sizes.hidden; ++row) {
      bias[row] /= static_cast<float>(layer + 1);
      for (uint32_t i = 0; i < sizes.hidden; ++i) weight[row * sizes.hidden + i] /= static_cast<float>(layer + 1);
    }
    out.floats(theirs + "attn_qkv.weight", {3 * int64_t{sizes.hidden}, sizes.hidden}, weight);
    out.floats(theirs + "attn_qkv.bias", {3 * int64_t{sizes.hidden}}, bias);
    for (const auto& [linear, name] : std::vector<std::pair<const char*, const char*>>{
             {"attn_output", "attn.c_proj"}, {"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}}) {
      matrix(cat(theirs, linear, ".weight"), cat(ours, name, ".weight"));
      vector(cat(theirs, linear, ".bias"), cat(ours, name, ".bias"));
    }
  }
  EXPECT_LT(relative_error(logits_of(graph_of(out.bytes())), logits_of(fixture_graph(fixture))), 1e-5);
}

/// A small Llama of random weights; the Linears and the table in blocks of a type, or as the numbers that these stand for.
std::string random_llama(gguf::Type type, bool as_floats) {
  constexpr uint32_t h = 256, heads = 4, ffn = 512, vocabulary = 64;
  std::mt19937 random(5);
  GgufWriter out;
  write_sizes(
      out, "llama",
      {.hidden = h, .heads = heads, .kv_heads = 2, .head_dim = h / heads, .ffn = ffn, .layers = 1, .context = 512},
      1e-5F);
  const gguf::BlockForm form = gguf::form_of(type, "");
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    std::string bytes(static_cast<size_t>(n * k / form.elements * form.bytes), '\0');
    for (char& one : bytes) one = static_cast<char>(random());
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(form.bytes)) {
      // Scales by which weights are of the order of 0.05 for all types, so that attention's scores are not in the hundreds; those of q6_k
      // come last, and minimums of the order of the scales second.
      const Float16 scale = to_float16(form.bytes == 210          ? 5e-5F
                                       : form.elements == 256     ? 1e-4F
                                       : type == gguf::Type::q8_0 ? 7e-4F
                                                                  : 0.01F),
                    least = to_float16(0.03F);
      std::memcpy(&bytes[at + (form.bytes == 210 ? 208 : 0)], &scale.bits, 2);
      if (type == gguf::Type::q4_1 || type == gguf::Type::q5_1) std::memcpy(&bytes[at + 2], &least.bits, 2);
      if (type == gguf::Type::q4_k || type == gguf::Type::q5_k) std::memcpy(&bytes[at + 2], &scale.bits, 2);
    }
    if (!as_floats) return out.tensor(name, type, {n, k}, bytes);
    const gguf::Entry entry{
        .type = type, .shape = Shape{n, k}, .blob = blob_of(bytes), .bytes = static_cast<int64_t>(bytes.size())};
    const Tensor values = gguf::dequantised(entry);
    const auto* first = reinterpret_cast<const float*>(values.data());
    Floats numbers(first, first + values.elements());
    // The table of types with zero points that are not whole is read as f16.
    const bool whole =
        type == gguf::Type::q4_0 || type == gguf::Type::q5_0 || type == gguf::Type::q8_0 || type == gguf::Type::q6_k;
    if (name == "token_embd.weight" && !whole)
      for (float& one : numbers) one = to_float(to_float16(one));
    out.floats(name, {n, k}, numbers);
  };
  matrix("token_embd.weight", vocabulary, h);
  out.floats("output_norm.weight", {h}, Floats(h, 1));
  for (const char* norm : {"attn_norm", "ffn_norm"}) out.floats(cat("blk.0.", norm, ".weight"), {h}, Floats(h, 1));
  matrix("blk.0.attn_q.weight", h, h);
  matrix("blk.0.attn_k.weight", h / 2, h);
  matrix("blk.0.attn_v.weight", h / 2, h);
  matrix("blk.0.attn_output.weight", h, h);
  matrix("blk.0.ffn_gate.weight", ffn, h);
  matrix("blk.0.ffn_up.weight", ffn, h);
  matrix("blk.0.ffn_down.weight", h, ffn);
  return out.bytes();
}

class QuantisedGguf : public testing::TestWithParam<gguf::Type> {};

TEST_P(QuantisedGguf, GivesTheLogitsOfTheNumbersThatItsCodesStandFor) {
  const Floats codes = logits_of(graph_of(random_llama(GetParam(), false)), 64),
               floats = logits_of(graph_of(random_llama(GetParam(), true)), 64);
  // A device multiplies codes with activations that are rounded to f16: each by 2^-12 at most, 2^-14 on average, in seven Linears.
  EXPECT_LT(relative_error(codes, floats), World::get().device == DeviceKind::host ? 1e-4 : 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedGguf,
                         testing::Values(gguf::Type::q4_0, gguf::Type::q4_1, gguf::Type::q5_0, gguf::Type::q5_1,
                                         gguf::Type::q8_0, gguf::Type::q4_k, gguf::Type::q5_k, gguf::Type::q6_k),
                         [](const auto& info) { return gguf::type_name(info.param); });

TEST(Gguf, LayingOutTellsHowFarItIsAndCanBeCancelled) {
  const auto file = blob_of(random_llama(gguf::Type::q4_k, false));
  LoadProgress progress;
  gguf::model_files({file}, DType::none, &progress);
  EXPECT_GT(progress.fraction(), 0.5);
  progress.cancel();
  EXPECT_THROW(gguf::model_files({file}, DType::none, &progress), Error);
}

}  // namespace
}  // namespace plait::test

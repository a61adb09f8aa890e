// The graph of a decoder: what the spec describes, in the ops of ONNX.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/decoder/decoder_spec.h"
#include "importers/decoder/graph_writer.h"
#include "importers/decoder/weight_forms.h"

namespace plait::decoder {
namespace {

using std::string;

/// An angular speed for each pair of rotated elements.
std::vector<float> frequencies(const Rope& rope) {
  std::vector<float> out;
  for (int64_t i = 0; i < rope.dims / 2; ++i) {
    double speed = std::pow(rope.base, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dims)) / rope.factor;
    if (rope.llama3) {
      const Rope::Llama3& scaling = *rope.llama3;
      const double length = 2 * M_PI / speed;
      const double blend = (scaling.context / length - scaling.low) / (scaling.high - scaling.low);
      if (length > scaling.context / scaling.low) speed /= scaling.factor;
      else if (length > scaling.context / scaling.high) speed = (1 - blend) * speed / scaling.factor + blend * speed;
    }
    if (!rope.factors.empty()) speed /= static_cast<double>(rope.factors[static_cast<size_t>(i)]);
    out.push_back(static_cast<float>(speed));
  }
  return out;
}

class DecoderWriter {
 public:
  DecoderWriter(const DecoderSpec& spec, const Weights& weights) : spec_(spec), weights_(weights) {}

  std::vector<NamedBlob> write() {
    const string ids = g_.input("input_ids", DType::i64, {batch, fresh});
    const string attention_mask = g_.input("attention_mask", DType::i64, {batch, total});
    const string positions = g_.input("position_ids", DType::i64, {batch, fresh});
    string x = embed(ids, positions);
    make_masks(ids, attention_mask);
    make_tables(positions);
    for (int64_t layer = 0; layer < spec_.layers(); ++layer) {
      const GraphWriter::Scope scope(g_, cat("layers.", layer));
      x = write_layer(layer, x);
    }
    x = norm("model.norm", x, spec_.hidden);
    head(x);
    for (const string& name : presents_) g_.output(name, DType::f32, {batch, spec_.kv_heads, total, spec_.head_dim});
    return g_.files();
  }

 private:
  static constexpr const char *batch = "batch_size", *fresh = "sequence_length", *past = "past_sequence_length",
                              *total = "past_sequence_length + sequence_length";

  // ---- Weights.
  Weight find(const string& name) const {
    if (std::optional<Weight> found = weights_(name)) return *found;
    throw Error(Code::bad_model, cat("the model has no weight ", name),
                "the file is incomplete, or of another architecture");
  }
  static void check(const string& name, const Weight& weight, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> have(weight.tensor.shape().begin(), weight.tensor.shape().end());
    if (weight.inputs_first) std::reverse(have.begin(), have.end());
    if (weight.blocks && have.size() == 3) have = {have[0], have[1] * weight.blocks->block};
    if (have != sizes)
      throw Error(Code::bad_model,
                  cat("the weight ", name, " is ", weight.tensor.shape().text(), ", expected ", Shape(sizes).text()),
                  "the file is damaged, or its configuration is of another model");
  }
  /// A weight of floats, widened where it is read: all arithmetic is f32.
  string widened(const string& name, const Weight& weight) {
    const string stored = g_.weight(name, weight.tensor);
    if (weight.tensor.dtype() == DType::f32) return stored;
    return g_.op("Cast", {stored}, {{"to", static_cast<int64_t>(DType::f32)}});
  }
  /// A vector as f32, with an offset.
  string vector_of(const string& name, int64_t size, double offset = 0) {
    const Weight weight = find(name);
    check(name, weight, {size});
    const string value = widened(name, weight);
    return offset == 0 ? value : g_.op("Add", {value, g_.number(static_cast<float>(offset))});
  }
  string matrix_of(const string& name, const Weight& weight) {
    const string value = widened(name, weight);
    return weight.inputs_first ? value : g_.op("Transpose", {value}, {{"perm", std::vector<int64_t>{1, 0}}});
  }
  string times(const string& x, const string& name, const Weight& weight, int64_t k, int64_t n) {
    check(name, weight, {n, k});
    if (!weight.blocks) return g_.op("MatMul", {x, matrix_of(name, weight)});
    const Weight::Blocks& blocks = *weight.blocks;
    std::vector<string> inputs = {x, g_.weight(name + ".codes", weight.tensor),
                                  g_.weight(name + ".scales", blocks.scales)};
    if (blocks.zeros) {
      // Engines read codes wherever they can be: ONNX Runtime has zero points of floats for 4 bits only.
      const std::optional<Tensor> zeros = packed_zeros(blocks);
      inputs.push_back(g_.weight(name + ".zeros", zeros ? *zeros : *blocks.zeros));
    }
    // Activations stay f32 where an engine follows accuracy_level 1.
    return g_.microsoft(
        "MatMulNBits", inputs,
        {{"K", k}, {"N", n}, {"bits", blocks.bits}, {"block_size", blocks.block}, {"accuracy_level", int64_t{1}}});
  }
  string linear(const string& name, const string& x, int64_t k, int64_t n) {
    const GraphWriter::Scope scope(g_, name.substr(name.rfind('.') + 1));
    string y = times(x, name + ".weight", find(name + ".weight"), k, n);
    if (weights_(name + ".bias")) y = g_.op("Add", {y, vector_of(name + ".bias", n)});
    return y;
  }
  string norm(const string& name, const string& x, int64_t size) {
    const GraphWriter::Scope scope(g_, name.substr(name.rfind('.') + 1));
    const string weight = vector_of(name + ".weight", size, spec_.norm_offset);
    const Attribute axis{"axis", int64_t{-1}}, epsilon{"epsilon", spec_.epsilon};
    if (spec_.norm == Norm::rms) return g_.op("RMSNormalization", {x, weight}, {axis, epsilon});
    std::vector<string> inputs{x, weight};
    if (weights_(name + ".bias")) inputs.push_back(vector_of(name + ".bias", size));
    return g_.op("LayerNormalization", inputs, {axis, epsilon});
  }

  // ---- What is the same for all layers.
  string embed(const string& ids, const string& positions) {
    const GraphWriter::Scope scope(g_, "embed_tokens");
    const string name = "model.embed_tokens.weight";
    string x = row_of(name, ids, spec_.vocabulary);
    if (spec_.embed_scale != 1) x = g_.op("Mul", {x, g_.number(static_cast<float>(spec_.embed_scale))});
    if (spec_.positions > 0)
      x = g_.op("Add", {x, row_of("model.embed_positions.weight", positions, spec_.positions)});
    return x;
  }
  string row_of(const string& name, const string& ids, int64_t rows) {
    const Weight table = find(name);
    check(name, table, {rows, spec_.hidden});
    if (table.blocks) {
      const Weight::Blocks& blocks = *table.blocks;
      const Tensor flat(DType::u8, {rows, spec_.hidden * blocks.bits / 8}, table.tensor.blob(),
                        offset_of(table.tensor));
      std::vector<string> inputs{g_.weight(name + ".rows", flat), ids, g_.weight(name + ".scales", blocks.scales)};
      if (blocks.zeros) inputs.push_back(g_.weight(name + ".zeros", *packed_zeros(blocks)));
      return g_.microsoft("GatherBlockQuantized", inputs,
                          {{"bits", blocks.bits},
                           {"block_size", blocks.block},
                           {"gather_axis", int64_t{0}},
                           {"quantize_axis", int64_t{1}}});
    }
    const string found = g_.op("Gather", {g_.weight(name, table.tensor), ids});
    return table.tensor.dtype() == DType::f32 ? found
                                              : g_.op("Cast", {found}, {{"to", static_cast<int64_t>(DType::f32)}});
  }
  static int64_t offset_of(const Tensor& tensor) { return tensor.data() - tensor.blob()->data(); }

  /// One mask per window in use: key j is open to query i if it is no padding, j <= i and i - j < window.
  void make_masks(const string& ids, const string& attention_mask) {
    const GraphWriter::Scope scope(g_, "mask");
    const string zero = g_.constant(0), one = g_.constant(1);
    const string length = g_.op("Gather", {g_.op("Shape", {ids}), one}),
                 all = g_.op("Gather", {g_.op("Shape", {attention_mask}), one});
    const string keys = g_.op("Range", {zero, all, one});
    const string queries =
        g_.op("Unsqueeze", {g_.op("Range", {g_.op("Sub", {all, length}), all, one}), g_.constants({1})});
    const string real = g_.op(
        "Unsqueeze",
        {g_.op("Cast", {attention_mask}, {{"to", static_cast<int64_t>(DType::boolean)}}), g_.constants({1, 2})});
    const string causal = g_.op("And", {g_.op("LessOrEqual", {keys, queries}), real});
    for (const int64_t window : spec_.windows) {
      if (masks_.contains(window)) continue;
      masks_[window] =
          !window ? causal
                  : g_.op("And", {causal, g_.op("Less", {g_.op("Sub", {queries, keys}), g_.constant(window)})});
    }
  }

  /// cos and sin [b, s, dims / 2] of each rope in use, computed from the positions, so that no table bounds the context.
  void make_tables(const string& positions) {
    const GraphWriter::Scope scope(g_, "rotary_emb");
    string at;
    for (const Rope& rope : spec_.ropes) {
      if (rope.dims == 0 ||
          std::any_of(tables_.begin(), tables_.end(), [&](const auto& made) { return made.first == rope; }))
        continue;
      if (at.empty())
        at = g_.op("Unsqueeze",
                   {g_.op("Cast", {positions}, {{"to", static_cast<int64_t>(DType::f32)}}), g_.constants({-1})});
      const string angle = g_.op("Mul", {at, g_.numbers(frequencies(rope))});
      std::pair<string, string> table{g_.op("Cos", {angle}), g_.op("Sin", {angle})};
      if (rope.amplitude != 1) {
        const string by = g_.number(static_cast<float>(rope.amplitude));
        table = {g_.op("Mul", {table.first, by}), g_.op("Mul", {table.second, by})};
      }
      tables_.emplace_back(rope, table);
    }
  }

  void head(const string& x) {
    const GraphWriter::Scope scope(g_, "lm_head");
    const string name = spec_.tied ? "model.embed_tokens.weight" : "lm_head.weight";
    const std::vector<Size> sizes{batch, fresh, spec_.vocabulary};
    string y = times(x, name, find(name), spec_.hidden, spec_.vocabulary);
    if (weights_("lm_head.bias")) y = g_.op("Add", {y, vector_of("lm_head.bias", spec_.vocabulary)});
    if (spec_.logit_cap > 0) {
      const string cap = g_.number(static_cast<float>(spec_.logit_cap));
      y = g_.op("Mul", {g_.op("Tanh", {g_.op("Div", {y, cap})}), cap});
    }
    g_.op_to({"logits"}, "Identity", {y});
    g_.output("logits", DType::f32, sizes);
  }

  // ---- A layer: x [b, s, h] -> [b, s, h].
  string write_layer(int64_t layer, const string& x) {
    const string prefix = cat("model.layers.", layer, ".");
    if (spec_.join != Join::serial) {
      const string first = norm(prefix + "input_layernorm", x, spec_.hidden);
      const string second =
          spec_.join == Join::parallel_one ? first : norm(prefix + "post_attention_layernorm", x, spec_.hidden);
      const string y = g_.op("Add", {attention(layer, prefix, first), mlp(layer, prefix, second)});
      return g_.op("Add", {x, y});
    }
    string y = spec_.pre_norms ? norm(prefix + "input_layernorm", x, spec_.hidden) : x;
    y = attention(layer, prefix, y);
    // Gemma norms what each half of the layer returns; the norm that Llama has there comes before the MLP.
    if (spec_.post_norms) y = norm(prefix + "post_attention_layernorm", y, spec_.hidden);
    const string middle = g_.op("Add", {x, y});
    y = middle;
    if (spec_.pre_norms)
      y = norm(prefix + (spec_.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"), y,
               spec_.hidden);
    y = mlp(layer, prefix, y);
    if (spec_.post_norms) y = norm(prefix + "post_feedforward_layernorm", y, spec_.hidden);
    return g_.op("Add", {middle, y});
  }

  string attention(int64_t layer, const string& prefix, const string& x) {
    const GraphWriter::Scope scope(g_, "self_attn");
    const string self = prefix + "self_attn.";
    const auto at = static_cast<size_t>(layer);
    string query = heads_of(self + "q", x, spec_.heads, spec_.qk_norm),
           key = heads_of(self + "k", x, spec_.kv_heads, spec_.qk_norm);
    const string value = heads_of(self + "v", x, spec_.kv_heads, false);
    query = rotated(query, spec_.ropes[at]);
    key = rotated(key, spec_.ropes[at]);
    std::vector<string> inputs{query, key, value, masks_.at(spec_.windows[at])};
    for (const char* kind : {"key", "value"}) {
      inputs.push_back(g_.input(cat("past_key_values.", layer, ".", kind), DType::f32,
                                {batch, spec_.kv_heads, past, spec_.head_dim}));
      presents_.push_back(cat("present.", layer, ".", kind));
    }
    Attributes attributes{{"scale", spec_.query_scales.empty() ? spec_.query_scale : spec_.query_scales[at]}};
    if (spec_.attention_cap > 0) attributes.push_back({"softcap", spec_.attention_cap});
    string y = g_.op_to({"", presents_[presents_.size() - 2], presents_.back()}, "Attention", inputs, attributes);
    y = g_.op("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = g_.op("Reshape", {y, g_.constants({0, 0, spec_.heads * spec_.head_dim})});
    return linear(self + "o_proj", y, spec_.heads * spec_.head_dim, spec_.hidden);
  }

  /// Projects x [b, s, h] to [b, heads, s, d].
  string heads_of(const string& name, const string& x, int64_t heads, bool normed) {
    const int64_t wide = heads * spec_.head_dim;
    string y = linear(name + "_proj", x, spec_.hidden, wide);
    if (normed && spec_.qk_norm_whole) y = norm(name + "_norm", y, wide);
    y = g_.op("Reshape", {y, g_.constants({0, 0, heads, spec_.head_dim})});
    if (normed && !spec_.qk_norm_whole) y = norm(name + "_norm", y, spec_.head_dim);
    return g_.op("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }

  string rotated(const string& x, const Rope& rope) {
    if (rope.dims == 0) return x;
    const auto found =
        std::find_if(tables_.begin(), tables_.end(), [&](const auto& made) { return made.first == rope; });
    Attributes attributes;
    if (rope.interleaved) attributes.push_back({"interleaved", int64_t{1}});
    if (rope.dims != spec_.head_dim) attributes.push_back({"rotary_embedding_dim", rope.dims});
    return g_.op("RotaryEmbedding", {x, found->second.first, found->second.second}, attributes);
  }

  string activated(const string& x) {
    if (spec_.activation == "silu") return g_.op("Mul", {x, g_.op("Sigmoid", {x})});
    if (spec_.activation == "quick_gelu")
      return g_.op("Mul", {x, g_.op("Sigmoid", {g_.op("Mul", {x, g_.number(1.702F)})})});
    if (spec_.activation == "relu") return g_.op("Relu", {x});
    if (spec_.activation == "relu2") {
      const string positive = g_.op("Relu", {x});
      return g_.op("Mul", {positive, positive});
    }
    if (spec_.activation == "sigmoid") return g_.op("Sigmoid", {x});
    if (spec_.activation == "tanh") return g_.op("Tanh", {x});
    if (spec_.activation == "linear") return x;
    if (spec_.activation == "gelu") return g_.op("Gelu", {x});
    return g_.op("Gelu", {x}, {{"approximate", string("tanh")}});
  }

  string mlp(int64_t layer, const string& prefix, const string& x) {
    const GraphWriter::Scope scope(g_, "mlp");
    return spec_.has_experts(layer) ? mixture(prefix + "mlp.", x) : dense(prefix + "mlp.", x, spec_.ffn);
  }

  string dense(const string& name, const string& x, int64_t ffn) {
    string y = linear(name + "up_proj", x, spec_.hidden, ffn);
    if (spec_.gated) y = g_.op("Mul", {activated(linear(name + "gate_proj", x, spec_.hidden, ffn)), y});
    else y = activated(y);
    return linear(name + "down_proj", y, ffn, spec_.hidden);
  }

  // ---- Experts.
  string mixture(const string& name, const string& x) {
    const Experts& experts = *spec_.experts;
    const string router = linear(name + "gate", x, spec_.hidden, experts.count);
    const string scores = g_.op("Reshape", {router, g_.constants({-1, experts.count})});
    if (experts.shared_ffn == 0) return chosen(name + "experts", x, scores);
    const string shared = shared_expert(name, x);
    return g_.op("Add", {chosen(name + "experts", x, scores), shared});
  }

  /// Comes before the experts in the file: ONNX Runtime 1.31's MoE overwrites its input.
  string shared_expert(const string& name, const string& x) {
    const GraphWriter::Scope scope(g_, "shared_expert");
    const string y = dense(name + "shared_expert.", x, spec_.experts->shared_ffn);
    const string gate = g_.op("Sigmoid", {linear(name + "shared_expert_gate", x, spec_.hidden, 1)});
    return g_.op("Mul", {gate, y});
  }

  /// The experts that are used, as com.microsoft has them: gate and up are one matrix of interleaved rows. With alpha 1 and beta 0 its
  /// swiglu is silu(gate) * up.
  string chosen(const string& name, const string& x, const string& scores) {
    const GraphWriter::Scope scope(g_, "experts");
    const Experts& experts = *spec_.experts;
    std::vector<Weight> in, out;
    for (int64_t expert = 0; expert < experts.count && !experts.stacked; ++expert)
      for (const char* one : {".gate_proj.weight", ".up_proj.weight", ".down_proj.weight"}) {
        const string own = cat(name, ".", expert, one);
        const bool down = one[1] == 'd';
        const Weight weight = find(own);
        check(own, weight, down ? std::vector{spec_.hidden, experts.ffn} : std::vector{experts.ffn, spec_.hidden});
        (down ? out : in).push_back(weight);
      }
    const auto stack = [&](const char* part, const std::vector<Weight>& weights, int64_t parts) {
      return experts.stacked ? ExpertStack{.weights = find(name + part).tensor} : stack_experts(weights, parts);
    };
    ExpertStack first = stack(".gate_up", in, 2), second = stack(".down", out, 1);
    const bool codes = first.bits > 0 && first.bits == second.bits && first.block == second.block;
    if (!codes && first.bits) first = stack_floats(in, 2);
    if (!codes && second.bits) second = stack_floats(out, 1);
    Attributes attributes{{"k", experts.used},
                          {"normalize_routing_weights", int64_t{experts.normalised}},
                          {"activation_type", string("swiglu")},
                          {"swiglu_fusion", int64_t{1}},
                          {"activation_alpha", 1.0},
                          {"activation_beta", 0.0}};
    if (!codes)
      return g_.microsoft(
          "MoE",
          {x, scores, widened(name + ".gate_up", {first.weights}), "", widened(name + ".down", {second.weights})},
          attributes);
    attributes.push_back({"expert_weight_bits", first.bits});
    attributes.push_back({"block_size", first.block});
    std::vector<string> inputs(15);
    inputs[0] = x;
    inputs[1] = scores;
    inputs[2] = g_.weight(name + ".gate_up", first.weights);
    inputs[3] = g_.weight(name + ".gate_up.scales", first.scales);
    inputs[5] = g_.weight(name + ".down", second.weights);
    inputs[6] = g_.weight(name + ".down.scales", second.scales);
    if (first.zeros) inputs[11] = g_.weight(name + ".gate_up.zeros", *first.zeros);
    if (second.zeros) inputs[12] = g_.weight(name + ".down.zeros", *second.zeros);
    // Its own shares are those of a softmax over the chosen ones.
    if (!experts.normalised) inputs[14] = g_.op("Softmax", {scores}, {{"axis", int64_t{-1}}});
    while (inputs.back().empty()) inputs.pop_back();
    return g_.microsoft("QMoE", inputs, attributes);
  }

  const DecoderSpec& spec_;
  const Weights& weights_;
  GraphWriter g_;
  std::map<int64_t, string> masks_;                                 ///< by window
  std::vector<std::pair<Rope, std::pair<string, string>>> tables_;  ///< cos and sin
  std::vector<string> presents_;
};

}  // namespace

std::vector<NamedBlob> write_decoder(const DecoderSpec& spec, const Weights& weights) {
  return DecoderWriter(spec, weights).write();
}

}  // namespace plait::decoder

// com.microsoft.MoE and QMoE compute what ONNX Runtime does, by plain loops; and experts are canonical in raised graphs.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/base/text.h"
#include "core/passes/compile.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/base/evaluate.h"
#include "tests/unit/importers/model_builder.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test::experts_forms {
namespace {

using Floats = std::vector<float>;

constexpr int64_t tokens = 5, experts = 4, h = 64, f = 32;

Floats numbers(int64_t count, int seed, float range = 1) {
  Floats out;
  uint64_t state = static_cast<uint64_t>(seed) * 77 + 5;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back(range * (static_cast<float>(state >> 40) / float{1 << 23} - 1));
  }
  return out;
}

/// A projection [experts, n, k], perhaps as codes in blocks.
struct Projection {
  int64_t n, k;
  Floats weights, bias;  ///< weights as what they stand for
  Floats scales;
  std::vector<uint8_t> codes, zeros;  ///< packed

  Projection(int64_t rows, int64_t columns, int seed)
      : n(rows), k(columns), weights(numbers(experts * n * k, seed, 0.3f)), bias(numbers(experts * n, seed + 1)) {}

  float weight(int64_t expert, int64_t row, int64_t column) const {
    return weights[static_cast<size_t>((expert * n + row) * k + column)];
  }

  /// `block` 0: one block a row. With zero points in the file, or the middle of the range.
  void quantise(int64_t bits, int64_t block, bool with_zeros) {
    const int64_t blocks = block ? k / block : 1, length = k / blocks, most = (int64_t{1} << bits) - 1;
    std::vector<int64_t> code, zero;
    scales = numbers(experts * n * blocks, 9, 1.0f / static_cast<float>(most));
    for (int64_t i = 0; i < experts * n * blocks; ++i) {
      zero.push_back(with_zeros ? (i * 5) % (most + 1) : (most + 1) / 2);
      for (int64_t j = 0; j < length; ++j) {
        code.push_back((i * 31 + j * 7 + i * j) % (most + 1));
        weights[static_cast<size_t>(i * length + j)] =
            static_cast<float>(code.back() - zero.back()) * scales[static_cast<size_t>(i)];
      }
    }
    codes = packed(code, k, bits);
    zeros = packed(zero, block ? blocks : n, bits);
  }
  /// Rows of `length` numbers, each filled up to whole bytes, low bits first.
  static std::vector<uint8_t> packed(const std::vector<int64_t>& all, int64_t length, int64_t bits) {
    const int64_t each = 8 / bits, bytes = (length + each - 1) / each;
    std::vector<uint8_t> out(static_cast<size_t>(static_cast<int64_t>(all.size()) / length * bytes));
    for (size_t i = 0; i < all.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / length, at = static_cast<int64_t>(i) % length;
      out[static_cast<size_t>(row * bytes + at / each)] |= static_cast<uint8_t>(all[i] << (at % each * bits));
    }
    return out;
  }
};

struct Form {
  std::string activation = "silu";
  int64_t k = 2, normalise = 0, fusion = 0;
  bool third = false, biases = false;
  double alpha = 1, beta = 0, limit = INFINITY;
  // of QMoE
  int64_t bits = 0, block = 0;  ///< bits 0: MoE
  bool zeros = false, router_weights = false;

  bool quantised() const { return bits > 0; }
};

std::string name(const Form& form) {
  return cat(form.activation, " fusion ", form.fusion, form.third ? " fc3" : "", form.biases ? " biases" : "",
             " normalise ", form.normalise, " bits ", form.bits, " block ", form.block, form.zeros ? " zeros" : "",
             form.router_weights ? " router weights" : "");
}

struct Layer {
  Form form;
  Projection fc1, fc2, fc3;
  Floats x = numbers(tokens * h, 1), router = numbers(tokens * experts, 2, 3), own = numbers(tokens * experts, 3);

  explicit Layer(const Form& of) : form(of), fc1(f * (of.fusion ? 2 : 1), h, 10), fc2(h, f, 20), fc3(f, h, 30) {
    for (float& share : own) share = std::fabs(share);
    if (!form.quantised()) return;
    for (Projection* each : {&fc1, &fc2, &fc3}) each->quantise(form.bits, form.block, form.zeros);
  }

  static double gelu(double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }
  double activated(double g) const {
    if (form.activation == "relu") return std::max(g, 0.0);
    if (form.activation == "gelu") return gelu(g);
    if (form.activation == "identity") return g;
    const double limited = form.activation == "swiglu" ? std::min(g, form.limit) : g;
    return limited / (1 + std::exp(-form.alpha * limited));
  }
  double up(double u) const {
    return form.activation == "swiglu" ? std::clamp(u, -form.limit, form.limit) + form.beta : u;
  }

  /// Chosen experts of a token, with their shares.
  std::vector<std::pair<int64_t, double>> route(int64_t token) const {
    const float* row = router.data() + token * experts;
    std::vector<int64_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    std::vector<std::pair<int64_t, double>> out;
    double all = 0, chosen = 0;
    for (int64_t e = 0; e < experts; ++e) all += std::exp(double{row[e]});
    for (int64_t i = 0; i < form.k; ++i) {
      const int64_t e = order[static_cast<size_t>(i)];
      const double share =
          form.router_weights ? own[static_cast<size_t>(token * experts + e)] : std::exp(double{row[e]});
      out.emplace_back(e, share);
      chosen += share;
    }
    const bool over_chosen = form.normalise || (form.quantised() && !form.router_weights);
    for (auto& [e, share] : out) share /= over_chosen ? chosen : form.router_weights ? 1 : all;
    return out;
  }

  Floats expected() const {
    Floats out;
    for (int64_t token = 0; token < tokens; ++token) {
      std::vector<double> y(h);
      for (const auto& [expert, share] : route(token)) {
        auto product = [&, e = expert](const Projection& p, int64_t row) {
          double sum = form.biases ? p.bias[static_cast<size_t>(e * p.n + row)] : 0;
          for (int64_t i = 0; i < h; ++i) sum += double{p.weight(e, row, i)} * x[static_cast<size_t>(token * h + i)];
          return sum;
        };
        std::vector<double> hidden;
        for (int64_t i = 0; i < f; ++i) {
          const int64_t gate = form.fusion == 1 ? 2 * i : i;
          double value = activated(product(fc1, gate));
          if (form.fusion) value *= up(product(fc1, form.fusion == 1 ? 2 * i + 1 : f + i));
          else if (form.third) value *= up(product(fc3, i));
          hidden.push_back(value);
        }
        for (int64_t o = 0; o < h; ++o) {
          double sum = form.biases ? fc2.bias[static_cast<size_t>(expert * h + o)] : 0;
          for (int64_t i = 0; i < f; ++i) sum += double{fc2.weight(expert, o, i)} * hidden[static_cast<size_t>(i)];
          y[static_cast<size_t>(o)] += share * sum;
        }
      }
      out.insert(out.end(), y.begin(), y.end());
    }
    return out;
  }

  // ---- as a file ----

  static void fill(ModelBuilder& b, const std::string& tensor, const std::vector<int64_t>& dims,
                   const Floats& values) {
    b.initializer(tensor, 1, dims).set_raw_data(values.data(), values.size() * sizeof(float));
  }
  static void fill(ModelBuilder& b, const std::string& tensor, std::vector<int64_t> dims,
                   const std::vector<uint8_t>& values) {
    int64_t others = 1;
    for (int64_t dim : dims) others *= dim;
    dims.push_back(static_cast<int64_t>(values.size()) / others);
    b.initializer(tensor, 2, dims).set_raw_data(values.data(), values.size());
  }

  ModelBuilder file() const {
    ModelBuilder b(21);
    b.import_opset("com.microsoft", 1);
    b.input("x", {"b", "s", "64"});
    b.input("router", {"t", "4"});
    b.input("own", {"t", "4"});
    Names inputs(form.quantised() ? 15 : 8);
    inputs[0] = "x";
    inputs[1] = "router";
    auto projection = [&](const std::string& label, const Projection& p, size_t at, size_t bias, size_t zeros) {
      inputs[at] = label + ".w";
      if (form.biases) fill(b, inputs[bias] = label + ".bias", {experts, p.n}, p.bias);
      if (!form.quantised()) return fill(b, label + ".w", {experts, p.n, p.k}, p.weights);
      fill(b, label + ".w", {experts, p.n}, p.codes);
      std::vector<int64_t> dims{experts, p.n};
      if (form.block) dims.push_back(p.k / form.block);
      fill(b, inputs[at + 1] = label + ".scales", dims, p.scales);
      if (!form.zeros) return;
      dims.resize(form.block ? 2 : 1);
      fill(b, inputs[zeros] = label + ".zeros", dims, p.zeros);
    };
    const size_t step = form.quantised() ? 3 : 2, behind = form.quantised() ? 2 : 1;
    projection("fc1", fc1, 2, 2 + behind, 11);
    projection("fc2", fc2, 2 + step, 2 + step + behind, 12);
    if (form.third) projection("fc3", fc3, 2 + 2 * step, 2 + 2 * step + behind, 13);
    if (form.router_weights) inputs[14] = "own";
    auto& node = b.node(form.quantised() ? "QMoE" : "MoE", inputs, {"y"}, "com.microsoft");
    node.set_name("the_experts");
    set_string(node, "activation_type", form.activation);
    set_int(node, "k", form.k);
    set_int(node, "normalize_routing_weights", form.normalise);
    set_int(node, "swiglu_fusion", form.fusion);
    auto real = [&](const char* key, double value) {
      add_attribute(node, key, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
    };
    real("activation_alpha", form.alpha);
    real("activation_beta", form.beta);
    if (std::isfinite(form.limit)) real("swiglu_limit", form.limit);
    if (form.quantised()) set_int(node, "expert_weight_bits", form.bits);
    if (form.block) set_int(node, "block_size", form.block);
    b.output("y");
    return b;
  }

  /// What the graph gives, before and behind fold.
  void check() const {
    SCOPED_TRACE(name(form));
    const World& world = World::get();
    const Floats wanted = expected();
    Graph graph = import_bytes(blob_of(file().bytes()), {}, world.ops).graph;
    for (bool folded : {false, true}) {
      const CompileOptions options = world.options();
      PassContext context{options, {}, {}, false};
      if (folded) fold(graph, context);
      Evaluator evaluator(context, graph);
      for (const auto& [symbol, size] : {std::pair{"b", int64_t{1}}, {"s", tokens}, {"t", tokens}})
        evaluator.bind_symbol(graph.symbols.intern(symbol), size);
      auto bind = [&](const char* input, const Shape& shape, const Floats& values) {
        if (ValueId id = graph.find(input); id != no_value)
          evaluator.bind(id, Tensor::of<float>(DType::f32, shape, values));
      };
      bind("x", {1, tokens, h}, x);
      bind("router", {tokens, experts}, router);
      bind("own", {tokens, experts}, own);
      Tensor y = evaluator.value(graph.outputs[0]);
      EXPECT_EQ(y.shape().text(), "[1, 5, 64]");
      ASSERT_EQ(y.elements(), tokens * h);
      for (int64_t i = 0; i < y.elements(); ++i)
        ASSERT_NEAR(y.as<float>()[i], wanted[static_cast<size_t>(i)], 2e-5) << i << (folded ? ", folded" : "");
    }
    for (const Node& node : graph.nodes) {
      if (node.op != "plait.Experts") continue;
      for (size_t k = 3; k < 6 && form.quantised(); ++k)  // codes are as narrow as in the file
        EXPECT_TRUE(node.inputs[k] == no_value || dtype_bits(graph.value(node.inputs[k]).type.dtype) == form.bits);
      return;
    }
    ADD_FAILURE() << "there is no plait.Experts";
  }
};

Form swiglu(Form form) {
  form.activation = "swiglu";
  form.alpha = 1.5, form.beta = 0.5, form.limit = 0.8;
  return form;
}

TEST(Experts, MoE) {
  for (const char* activation : {"relu", "gelu", "silu", "identity"})
    for (int64_t normalise : {0, 1}) Layer({.activation = activation, .normalise = normalise}).check();
  Layer({.k = 1, .biases = true}).check();
  Layer({.k = 4, .third = true, .biases = true}).check();
  for (int64_t fusion : {1, 2}) Layer(swiglu({.normalise = 1, .fusion = fusion, .biases = true})).check();
  Layer(swiglu({.third = true})).check();
  Layer({.activation = "swiglu", .fusion = 1}).check();  // no limit
}

TEST(Experts, QMoE) {
  for (int64_t bits : {2, 4, 8})
    for (int64_t block : {0, 16, 32})
      for (bool zeros : {false, true}) {
        Layer(swiglu({.fusion = 1, .biases = true, .bits = bits, .block = block, .zeros = zeros})).check();
        Layer({.third = true, .bits = bits, .block = block, .zeros = zeros}).check();
      }
  for (int64_t normalise : {0, 1})
    Layer({.normalise = normalise, .bits = 4, .block = 32, .router_weights = true}).check();
  Layer(swiglu({.fusion = 2, .bits = 4, .block = 16, .zeros = true})).check();
}

TEST(Experts, OtherFormsAreRefusedByName) {
  auto refused = [](const Form& form, Code code, const std::string& why, auto change) {
    ModelBuilder b = Layer(form).file();
    change(*b.graph().mutable_node(0));
    expect_error(code, {"the_experts", form.quantised() ? "QMoE" : "MoE", why},
                 [&] { import_bytes(blob_of(b.bytes()), {}, World::get().ops); });
  };
  auto nothing = [](onnx::NodeProto&) {};
  auto integer = [](const char* key, int64_t value) {
    return [=](onnx::NodeProto& node) {
      for (auto& attribute : *node.mutable_attribute())
        if (attribute.name() == key) return attribute.set_i(value);
      set_int(node, key, value);
    };
  };
  const Form plain, packed{.bits = 4, .block = 32};
  refused(plain, Code::unsupported, "use_sparse_mixer", integer("use_sparse_mixer", 1));
  refused(plain, Code::unsupported, "swiglu_fusion", integer("swiglu_fusion", 1));
  refused(plain, Code::bad_model, "attribute k", integer("k", 0));
  refused({.activation = "swish"}, Code::bad_model, "activation_type", nothing);
  refused({.activation = "swiglu"}, Code::unsupported, "neither a fused fc1 nor an fc3", nothing);
  refused({.activation = "swiglu", .third = true}, Code::unsupported, "both a fused", integer("swiglu_fusion", 1));
  refused(swiglu({.fusion = 1}), Code::unsupported, "expected [experts, inner, hidden]",
          [](onnx::NodeProto& node) { node.set_input(4, node.input(2)); });
  refused(packed, Code::unsupported, "private layout", integer("weights_prepacked", 1));
  refused(packed, Code::unsupported, "weights of 3 bits", integer("expert_weight_bits", 3));
  refused(packed, Code::unsupported, "in blocks of 24", integer("block_size", 24));
  refused(packed, Code::unsupported, "input 2 are not constant",
          [](onnx::NodeProto& node) { node.set_input(2, "x"); });
  refused(packed, Code::unsupported, "quant_type",
          [](onnx::NodeProto& node) { set_string(node, "quant_type", "fp4"); });
  refused({.third = true, .bits = 4, .zeros = true}, Code::unsupported, "only one of",
          [](onnx::NodeProto& node) { node.set_input(13, ""); });
}

// ---- raised graphs ----

/// A decoder with experts behind its attention; `quantised` ones have codes of 8 bits.
Graph decoder(bool quantised) {
  DecoderMaker m;
  constexpr int64_t width = DecoderMaker::hidden;
  ValueId x = m.embedded();
  ValueId query = m.heads(x, 2, 4), key = m.heads(x, 2, 4), value = m.heads(x, 2, 4);
  Dims dims{m.dim("b"), 2, m.dim("p"), 4};
  ValueId keys = m.concat({m.past("key", dims), key}, -2), values = m.concat({m.past("value", dims), value}, -2);
  m.present("key", keys);
  m.present("value", values);
  ValueId scores = m.op("Mul", {m.op("MatMul", {query, m.transpose(keys, {0, 1, 3, 2})}), m.real(0.5)});
  ValueId context = m.op("MatMul", {m.chances(scores, m.visible(m.size(keys, 2))), values});
  x = m.op("Add", {x, m.reshape(m.transpose(context, {0, 2, 1, 3}), {0, 0, width})});
  ValueId flat = m.reshape(x, {-1, width});
  auto top = m.ops("TopK", {m.linear(flat, width, 3), m.ints({2})}, 2);
  ValueId shares = m.op("Softmax", {top[0]}, DecoderMaker::with("axis", int64_t{-1}));
  std::vector<ValueId> operands{
      flat, top[1], shares, m.weight({3, 16, width}), m.weight({3, 16, width}), m.weight({3, width, 16})};
  Attributes attributes;
  if (quantised) {
    operands.resize(14, no_value);
    for (size_t k : {3, 4, 5}) {
      const int64_t n = k == 5 ? width : 16, length = k == 5 ? 16 : width;
      Tensor codes(DType::u8, {3, n, 1, length});
      for (int64_t i = 0; i < codes.elements(); ++i) codes.as<uint8_t>()[i] = static_cast<uint8_t>(i * 37 + 11);
      operands[k] = m.graph.add_constant(codes);
      operands[9 + 2 * (k - 3)] =
          m.graph.add_constant(Tensor::of<float>(DType::f32, {3, n, 1}, Floats(static_cast<size_t>(3 * n), 0.01f)));
    }
    attributes.set("zero", int64_t{128});
    attributes.set("down_zero", int64_t{128});
  }
  ValueId mixed = m.op("plait.Experts", operands, attributes);
  x = m.op("Add", {x, m.op("Reshape", {mixed, m.op("Shape", {x})})});
  return m.finish(x, width);
}

TEST(Experts, StayWhatTheyAreInRaisedGraphs) {
  EXPECT_EQ(expect_raised_equals_plain(decoder(false)).features()["Experts f32"], 1);
  EXPECT_EQ(expect_raised_equals_plain(decoder(true)).features()["Experts u8"], 1);
}

TEST(Experts, AreStoredInHalfPrecisionIfAsked) {
  CompileOptions options = World::get().options();
  options.dtype = DType::bf16;
  EXPECT_EQ(recognise(decoder(false), options).features()["Experts bf16"], 1);
}

}  // namespace
}  // namespace plait::test::experts_forms

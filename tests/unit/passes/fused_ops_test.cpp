// Ops that the importer writes as others compute their definitions, written as plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/passes/base/evaluate.h"
#include "tests/unit/importers/model_builder.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

std::vector<float> numbers(size_t count, int seed) {
  std::vector<float> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>((static_cast<int>(i) * 37 + seed * 11) % 19 - 9) / 8);
  return out;
}
Tensor f32(const Shape& shape, const std::vector<float>& values) {
  return Tensor::of<float>(DType::f32, shape, values);
}

void fill(ModelBuilder& b, const std::string& name, const std::vector<int64_t>& dims,
          const std::vector<float>& values) {
  auto& tensor = b.initializer(name, 1, dims);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
}

/// The graph's outputs for inputs by name.
std::vector<Tensor> run(const ModelBuilder& b, const std::vector<std::pair<std::string, Tensor>>& inputs) {
  const World& world = World::get();
  Graph graph = import_bytes(blob_of(b.bytes()), {}, world.ops).graph;
  const CompileOptions options = world.options();
  const PassContext context{options, {}, {}};
  Evaluator evaluator(context, graph);
  for (const auto& [name, tensor] : inputs) evaluator.bind(graph.find(name), tensor);
  std::vector<Tensor> out;
  for (ValueId id : graph.outputs) out.push_back(evaluator.value(id));
  return out;
}

void expect_near(const Tensor& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got.as<float>()[i], expected[i], 1e-5) << i;
}

TEST(FusedOps, AttentionOfStackedPast) {
  constexpr int64_t s = 3, p = 2, h = 2, d = 2, hidden = 4, total = p + s;
  std::vector<float> x = numbers(s * hidden, 1), w = numbers(hidden * 12, 2), bias = numbers(12, 3),
                     past = numbers(2 * h * p * d, 4);
  std::vector<int32_t> mask{0, 1, 1, 1, 1};
  ModelBuilder b(11);
  b.import_opset("com.microsoft", 1);
  b.input("x", {"b", "s", "4"});
  b.input("mask", {"b", "t"}, 6);
  b.input("past", {"2", "b", "2", "p", "2"});
  fill(b, "w", {hidden, 12}, w);
  fill(b, "bias", {12}, bias);
  auto& node = b.node("Attention", {"x", "w", "bias", "mask", "past"}, {"y", "present"}, "com.microsoft");
  set_int(node, "num_heads", h);
  set_int(node, "unidirectional", 1);
  b.output("y");
  b.output("present");
  auto out = run(b, {{"x", f32({1, s, hidden}, x)},
                     {"mask", Tensor::of<int32_t>(DType::i32, {1, total}, mask)},
                     {"past", f32({2, 1, h, p, d}, past)}});
  ASSERT_EQ(out.size(), 2u);

  auto projected = [&](int64_t token, int64_t column) {
    double sum = bias[static_cast<size_t>(column)];
    for (int64_t i = 0; i < hidden; ++i)
      sum += double{x[static_cast<size_t>(token * hidden + i)]} * w[static_cast<size_t>(i * 12 + column)];
    return sum;
  };
  /// Element of key (1) or value (2) at a place of past and new tokens.
  auto side = [&](int64_t which, int64_t head, int64_t place, int64_t i) {
    if (place < p) return double{past[static_cast<size_t>((((which - 1) * h + head) * p + place) * d + i)]};
    return projected(place - p, which * hidden + head * d + i);
  };
  std::vector<float> y(s * hidden), present;
  for (int64_t t = 0; t < s; ++t)
    for (int64_t head = 0; head < h; ++head) {
      std::vector<double> scores;
      double sum = 0;
      for (int64_t j = 0; j < total; ++j) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += projected(t, head * d + i) * side(1, head, j, i);
        bool seen = mask[static_cast<size_t>(j)] && j <= p + t;
        scores.push_back(seen ? std::exp(score / std::sqrt(double{d})) : 0);
        sum += scores.back();
      }
      for (int64_t i = 0; i < d; ++i) {
        double value = 0;
        for (int64_t j = 0; j < total; ++j) value += scores[static_cast<size_t>(j)] / sum * side(2, head, j, i);
        y[static_cast<size_t>(t * hidden + head * d + i)] = static_cast<float>(value);
      }
    }
  for (int64_t which : {1, 2})
    for (int64_t head = 0; head < h; ++head)
      for (int64_t j = 0; j < total; ++j)
        for (int64_t i = 0; i < d; ++i) present.push_back(static_cast<float>(side(which, head, j, i)));
  expect_near(out[0], y);
  EXPECT_EQ(out[1].shape().text(), "[2, 1, 2, 5, 2]");
  expect_near(out[1], present);
}

TEST(FusedOps, EmbedLayerNormalization) {
  constexpr int64_t h = 4;
  std::vector<float> words = numbers(5 * h, 1), places = numbers(6 * h, 2), gamma = numbers(h, 3),
                     beta = numbers(h, 4);
  for (bool given : {false, true}) {
    ModelBuilder b(11);
    b.import_opset("com.microsoft", 1);
    b.input("ids", {"b", "s"}, 6);
    if (given) b.input("positions", {"b", "s"}, 6);
    fill(b, "words", {5, h}, words);
    fill(b, "places", {6, h}, places);
    fill(b, "gamma", {h}, gamma);
    fill(b, "beta", {h}, beta);
    Names inputs{"ids", "", "words", "places", "", "gamma", "beta"};
    if (given) inputs.insert(inputs.end(), {"", "positions"});
    auto& node = b.node("EmbedLayerNormalization", inputs, {"y", "count", "sum"}, "com.microsoft");
    add_attribute(node, "epsilon", onnx::AttributeProto::FLOAT).set_f(1e-3f);
    for (const char* name : {"y", "count", "sum"}) b.output(name);
    std::vector<int32_t> ids{3, 0, 4},
        positions = given ? std::vector<int32_t>{5, 1, 2} : std::vector<int32_t>{0, 1, 2};
    std::vector<std::pair<std::string, Tensor>> bound{{"ids", Tensor::of<int32_t>(DType::i32, {1, 3}, ids)}};
    if (given) bound.emplace_back("positions", Tensor::of<int32_t>(DType::i32, {1, 3}, positions));
    auto out = run(b, bound);
    ASSERT_EQ(out.size(), 3u);
    std::vector<float> sum, y;
    for (size_t t = 0; t < 3; ++t) {
      double mean = 0, squares = 0;
      for (size_t i = 0; i < h; ++i) {
        sum.push_back(words[static_cast<size_t>(ids[t]) * h + i] + places[static_cast<size_t>(positions[t]) * h + i]);
        mean += double{sum.back()} / h;
      }
      for (size_t i = 0; i < h; ++i) squares += (sum[t * h + i] - mean) * (sum[t * h + i] - mean) / h;
      for (size_t i = 0; i < h; ++i)
        y.push_back(static_cast<float>((sum[t * h + i] - mean) / std::sqrt(squares + 1e-3) * gamma[i] + beta[i]));
    }
    expect_near(out[0], y);
    EXPECT_EQ(to_ints(out[1].view()), std::vector<int64_t>{0}) << "no mask shows nothing";
    expect_near(out[2], sum);
  }
}

TEST(FusedOps, OtherFormsAreRefusedByName) {
  ModelBuilder b(11);
  b.import_opset("com.microsoft", 1);
  b.input("x", {"b", "s", "4"});
  b.input("mask", {"b", "1", "1", "s", "s"}, 6);
  fill(b, "w", {4, 12}, numbers(48, 1));
  set_int(b.node("Attention", {"x", "w", "", "mask"}, {"y"}, "com.microsoft"), "num_heads", 2);
  b.output("y");
  expect_error(Code::unsupported, {"Attention", "mask of rank 5"},
               [&] { import_bytes(blob_of(b.bytes()), {}, World::get().ops); });
}

/// A model of one node of com.microsoft, whose first input is an image, and the others constants.
ModelBuilder one_node(const std::string& op, const Names& inputs, const std::string& domain = "com.microsoft") {
  ModelBuilder b(20);
  b.import_opset(domain, 1);
  b.input("x", {"1", "4", "5", "5"});
  for (const std::string& name : std::set<std::string>(inputs.begin(), inputs.end()))
    if (name != "x" && !name.empty()) fill(b, name, {4, 4, 1, 1}, numbers(16, 1));
  b.node(op, inputs, {"y"}, domain);
  b.output("y");
  return b;
}

TEST(FusedOps, WrongFormsTellWhatIsExpected) {
  const auto refuse = [](const ModelBuilder& b, Code code, const std::vector<std::string>& parts) {
    expect_error(code, parts, [&] { import_bytes(blob_of(b.bytes()), {}, World::get().ops); });
  };
  ModelBuilder b = one_node("FusedConv", {"x", "w"});
  set_string(*b.model.mutable_graph()->mutable_node(0), "activation", "Softmin");
  refuse(b, Code::unsupported, {"FusedConv", "the activation \"Softmin\" is not known"});
  b = one_node("FusedConv", {"x", "w"});
  set_string(*b.model.mutable_graph()->mutable_node(0), "activation", "Clip");
  refuse(b, Code::bad_model, {"FusedConv", "activation_params", "0 numbers, expected 2 for Clip"});
  b = one_node("FusedConv", {"x", "w"});
  set_int(*b.model.mutable_graph()->mutable_node(0), "speed", 1);
  refuse(b, Code::bad_model, {"FusedConv", "no attribute \"speed\""});
  refuse(one_node("FusedConv", {"x"}), Code::bad_model, {"FusedConv", "2 to 4 inputs, got 1"});
  refuse(one_node("NhwcMaxPool", {"x"}), Code::bad_model, {"NhwcMaxPool", "kernel_shape"});
  refuse(one_node("QGemm", {"x", "w", "w", "x"}), Code::bad_model, {"QGemm", "6 to 9 inputs, got 4"});
  b = one_node("QLinearConcat", {"w", "w", "x", "w"});
  set_int(*b.model.mutable_graph()->mutable_node(0), "axis", 1);
  refuse(b, Code::bad_model, {"QLinearConcat", "4 inputs, expected 2, and 3 for each part"});
  b = one_node("CDist", {"x", "w"});
  set_string(*b.model.mutable_graph()->mutable_node(0), "metric", "cosine");
  refuse(b, Code::unsupported, {"CDist", "\"cosine\", expected sqeuclidean or euclidean"});
  refuse(one_node("Conv", {"x", "w"}, "com.microsoft.nchwc"), Code::unsupported,
         {"com.microsoft.nchwc", "does not have this op"});
  try {
    import_bytes(blob_of(one_node("Conv", {"x", "w"}, "com.microsoft.nchwc").bytes()), {}, World::get().ops);
    ADD_FAILURE() << "is read";
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("ORT_ENABLE_EXTENDED"), std::string::npos) << error.hint();
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(FusedOps, CausalConvolutionWithState) {
  constexpr int64_t b = 2, c = 3, s = 4, k = 3;
  std::vector<float> x = numbers(b * c * s, 1), w = numbers(c * k, 2), bias = numbers(c, 3),
                     past = numbers(b * c * (k - 1), 4);
  for (bool cached : {false, true}) {
    for (const char* activation : {"none", "silu"}) {
      ModelBuilder m(21);
      m.import_opset("com.microsoft", 1);
      m.input("x", {"2", "3", "s"});
      m.input("past", {"2", "3", "2"});
      fill(m, "w", {c, 1, k}, w);
      fill(m, "bias", {c}, bias);
      auto& node =
          m.node("CausalConvWithState", {"x", "w", "bias", cached ? "past" : ""}, {"y", "present"}, "com.microsoft");
      set_string(node, "activation", activation);
      m.output("y");
      m.output("present");
      auto out = run(m, {{"x", f32({b, c, s}, x)}, {"past", f32({b, c, k - 1}, past)}});
      ASSERT_EQ(out.size(), 2u);
      std::vector<float> y, present;
      for (int64_t row = 0; row < b * c; ++row) {
        auto at = [&](int64_t place) {  // counted from the first new element
          if (place >= 0) return double{x[static_cast<size_t>(row * s + place)]};
          return cached ? double{past[static_cast<size_t>(row * (k - 1) + place + k - 1)]} : 0.0;
        };
        for (int64_t t = 0; t < s; ++t) {
          double sum = bias[static_cast<size_t>(row % c)];
          for (int64_t i = 0; i < k; ++i)
            sum += double{w[static_cast<size_t>(row % c * k + i)]} * at(t + i - (k - 1));
          y.push_back(static_cast<float>(activation == std::string("silu") ? sum * sigmoid(sum) : sum));
        }
        for (int64_t i = s - (k - 1); i < s; ++i) present.push_back(static_cast<float>(at(i)));
      }
      expect_near(out[0], y);
      expect_near(out[1], present);
    }
  }
}

TEST(FusedOps, GatesOfLinearAttention) {
  constexpr int64_t tokens = 3, h = 4;
  std::vector<float> a = numbers(tokens * h, 1), bias = numbers(h, 2), scale = numbers(h, 3),
                     beta = numbers(tokens * h, 4);
  ModelBuilder m(21);
  m.import_opset("com.microsoft", 1);
  m.input("a", {"1", "3", "4"});
  m.input("b", {"1", "3", "4"});
  fill(m, "bias", {h}, bias);
  fill(m, "scale", {h}, scale);
  m.node("LinearAttentionGate", {"a", "bias", "scale", "b"}, {"decay", "beta"}, "com.microsoft");
  m.output("decay");
  m.output("beta");
  auto out = run(m, {{"a", f32({1, tokens, h}, a)}, {"b", f32({1, tokens, h}, beta)}});
  std::vector<float> decay, rate;
  for (size_t i = 0; i < a.size(); ++i) {
    decay.push_back(static_cast<float>(scale[i % h] * std::log1p(std::exp(double{a[i]} + bias[i % h]))));
    rate.push_back(static_cast<float>(sigmoid(beta[i])));
  }
  expect_near(out[0], decay);
  expect_near(out[1], rate);
}

/// Each column by the position that owns it; the halves of a head turn against each other.
TEST(FusedOps, RotaryEmbeddingOfThreePositions) {
  constexpr int64_t tokens = 2, heads = 2, d = 12, z = 6, rows = 5;
  const std::vector<float> x = numbers(heads * tokens * d, 1), cosine = numbers(rows * z, 2), sine = numbers(rows * z, 3);
  const std::vector<int64_t> positions{0, 4, 1, 3, 2, 0};
  struct Layout {
    int64_t number;
    std::vector<int64_t> sections;
    std::vector<size_t> owner;
  };
  for (const Layout& layout : {Layout{0, {3, 2, 1}, {0, 0, 0, 1, 1, 2}},
                               {1, {3, 2, 1}, {0, 1, 2, 0, 1, 0}},
                               {0, {6, 0, 0}, {0, 0, 0, 0, 0, 0}}}) {
    ModelBuilder m(23);
    m.import_opset("com.microsoft", 1);
    m.input("x", {"1", "2", "2", "12"});
    m.input("positions", {"3", "1", "2"}, 7);
    fill(m, "cos", {rows, z}, cosine);
    fill(m, "sin", {rows, z}, sine);
    auto& node = m.node("MRotaryEmbedding", {"x", "positions", "cos", "sin"}, {"y"}, "com.microsoft");
    set_ints(node, "mrope_section", layout.sections);
    set_int(node, "mrope_layout", layout.number);
    m.output("y");
    auto out = run(m, {{"x", f32({1, heads, tokens, d}, x)}, {"positions", Tensor::of_ints(positions).reshaped({3, 1, tokens})}});
    std::vector<float> y = x;
    for (size_t h = 0; h < heads; ++h)
      for (size_t t = 0; t < tokens; ++t)
        for (size_t i = 0; i < z; ++i) {
          const size_t row = static_cast<size_t>(positions[layout.owner[i] * tokens + t]) * z + i, at = (h * tokens + t) * d + i;
          y[at] = x[at] * cosine[row] - x[at + z] * sine[row];
          y[at + z] = x[at + z] * cosine[row] + x[at] * sine[row];
        }
    expect_near(out[0], y);
  }
}

TEST(FusedOps, SwiGluOfLimitedHalves) {
  constexpr size_t rows = 3, inter = 5;
  const std::vector<float> gate = numbers(rows * inter, 3), up = numbers(rows * inter, 8);
  std::vector<float> both, expected;
  for (size_t i = 0; i < rows * inter; ++i) {
    const double g = std::min<double>(gate[i], 0.75), u = std::clamp<double>(up[i], -0.75, 0.75);
    expected.push_back(static_cast<float>(g / (1 + std::exp(-1.7 * g)) * (u + 1)));
  }
  for (size_t i = 0; i < rows; ++i)
    for (const auto* half : {&gate, &up})
      both.insert(both.end(), half->begin() + i * inter, half->begin() + (i + 1) * inter);
  for (bool packed : {false, true}) {
    ModelBuilder b(11);
    b.import_opset("com.microsoft", 1);
    b.input("gate", {"t", packed ? "10" : "5"});
    if (!packed) b.input("up", {"t", "5"});
    auto& node = b.node("SwiGLU", {"gate"}, {"y"}, "com.microsoft");
    if (!packed) node.add_input("up");
    for (const auto& [name, value] :
         {std::pair{"limit", 0.75f}, {"activation_alpha", 1.7f}, {"activation_beta", 1.0f}})
      set_float(node, name, value);
    b.output("y");
    std::vector<std::pair<std::string, Tensor>> inputs{
        {"gate", packed ? f32({rows, 2 * inter}, both) : f32({rows, inter}, gate)}};
    if (!packed) inputs.emplace_back("up", f32({rows, inter}, up));
    expect_near(run(b, inputs)[0], expected);
  }
}

TEST(FusedOps, RouterAndGatedHalvesOfOneProduct) {
  constexpr int64_t rows = 2, k = 4, router = 3, inter = 2, n = router + 2 * inter;
  const std::vector<float> x = numbers(rows * k, 5), w = numbers(k * n, 6);
  std::vector<float> scores, activated;
  for (int64_t i = 0; i < rows; ++i) {
    double y[n] = {};
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0; c < k; ++c) y[j] += double{x[i * k + c]} * w[c * n + j];
    for (int64_t j = 0; j < router; ++j) scores.push_back(static_cast<float>(y[j]));
    for (int64_t j = router; j < router + inter; ++j)
      activated.push_back(static_cast<float>(y[j] / (1 + std::exp(-y[j])) * y[j + inter]));
  }
  ModelBuilder b(11);
  b.import_opset("com.microsoft", 1);
  b.input("x", {"t", "4"});
  fill(b, "w", {k, n}, w);
  set_int(b.node("RouterGateUpProj", {"x", "w"}, {"router", "activated"}, "com.microsoft"), "router_size", router);
  b.output("router");
  b.output("activated");
  const std::vector<Tensor> out = run(b, {{"x", f32({rows, k}, x)}});
  expect_near(out[0], scores);
  expect_near(out[1], activated);
}

TEST(FusedOps, GatedNormOfEachHead) {
  constexpr int64_t tokens = 3, heads = 2, d = 4;
  std::vector<float> x = numbers(tokens * heads * d, 1), scale = numbers(d, 2), gate = numbers(tokens * heads * d, 3);
  for (const char* activation : {"silu", "sigmoid"}) {
    ModelBuilder m(21);
    m.import_opset("com.microsoft", 1);
    m.input("x", {"1", "3", "8"});
    m.input("gate", {"1", "3", "8"});
    fill(m, "scale", {d}, scale);
    auto& node = m.node("GatedRMSNorm", {"x", "scale", "gate"}, {"y"}, "com.microsoft");
    set_string(node, "activation", activation);
    m.output("y");
    auto out = run(m, {{"x", f32({1, tokens, heads * d}, x)}, {"gate", f32({1, tokens, heads * d}, gate)}});
    std::vector<float> y;
    for (int64_t i = 0; i < tokens * heads * d; ++i) {
      double squares = 0;
      for (int64_t j = i / d * d; j < i / d * d + d; ++j)
        squares += double{x[static_cast<size_t>(j)]} * x[static_cast<size_t>(j)];
      double g = gate[static_cast<size_t>(i)], normed = x[static_cast<size_t>(i)] / std::sqrt(squares / d + 1e-5);
      y.push_back(static_cast<float>(normed * scale[static_cast<size_t>(i % d)] *
                                     (activation == std::string("silu") ? g * sigmoid(g) : sigmoid(g))));
    }
    expect_near(out[0], y);
  }
}

}  // namespace
}  // namespace plait::test

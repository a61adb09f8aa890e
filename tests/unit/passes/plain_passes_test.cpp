// Passes of plain graphs change how a graph is computed, not what: random networks of images with and without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/base/error.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

using Ints = std::vector<int64_t>;

/// Networks of ops that keep [b, c, space], or change c and space.
class NetworkMaker {
 public:
  NetworkMaker(uint32_t seed, size_t space) : random_(seed), space_(space) {
    Dims dims{graph.symbol("batch"), Dim(6)};
    for (size_t i = 0; i < space; ++i) dims.emplace_back(11);
    graph.inputs = {graph.add_value("x", {DType::f32, dims})};
    values_.push_back({graph.inputs[0], 6, 11});
  }

  Graph graph;

  void grow(int ops) {
    for (int i = 0; i < ops; ++i) add();
    for (size_t i = 0; i < 2; ++i) graph.outputs.push_back(values_[values_.size() - 1 - i].id);
    graph.outputs.push_back(op("Reshape", {values_.back().id, ints({0, -1})}));
  }

 private:
  struct Image {
    ValueId id;
    int64_t channels, size;
  };
  size_t below(size_t n) { return random_() % n; }
  Image any() { return values_[values_.size() - 1 - below(std::min<size_t>(values_.size(), 3))]; }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attributes how = {}, int outputs = 1) {
    Node& node = graph.add_node(name, std::move(inputs), outputs, std::move(how));
    node.name = cat(name, ".", graph.nodes.size());
    return node.outputs[0];
  }
  ValueId weight(Shape shape, double low = -0.4, double high = 0.4) {
    return graph.add_constant(random_tensor(DType::f32, shape, random_(), low, high));
  }
  ValueId ints(Ints numbers) { return graph.add_constant(Tensor::of_ints(numbers)); }
  ValueId number(double value) { return graph.add_constant(tensor(DType::f32, {}, {value})); }
  Ints each(int64_t one) const { return Ints(space_, one); }
  Ints pads(int64_t one) const { return Ints(2 * space_, one); }
  /// [c, 1, ...]
  ValueId channel_row(int64_t c) {
    Shape shape{c};
    for (size_t i = 0; i < space_; ++i) shape.push_back(1);
    return weight(shape, 0.2, 1);
  }

  void add() {
    const Image x = any();
    switch (below(18)) {
      case 0:
      case 1:
      case 2: return convolve(x);
      case 3:
        return keep(x, op("BatchNormalization", {x.id, weight({x.channels}, 0.5, 1), weight({x.channels}),
                                                 weight({x.channels}), weight({x.channels}, 0.5, 1)}));
      case 4: return keep(x, op("Clip", {x.id, number(-0.5), number(0.7)}));
      case 5: {
        const char* names[] = {"Relu", "HardSwish", "HardSigmoid", "LeakyRelu", "Tanh", "Gelu", "Swish", "Softplus"};
        return keep(x, op(names[below(8)], {x.id}));
      }
      case 6: return keep(x, op("Mul", {x.id, op("Sigmoid", {x.id})}));
      case 7: {
        for (const Image& y : values_)
          if (y.channels == x.channels && y.size == x.size && y.id != x.id) return keep(x, op("Add", {x.id, y.id}));
        return keep(x, op("Add", {channel_row(x.channels), x.id}));
      }
      case 8: {
        std::vector<ValueId> parts{x.id};
        int64_t channels = x.channels;
        for (const Image& y : values_)
          if (y.size == x.size && parts.size() < 3) parts.push_back(y.id), channels += y.channels;
        values_.push_back({op("Concat", parts, attributes({{"axis", int64_t{1}}})), channels, x.size});
        return;
      }
      case 9:
      case 10: {
        const char* kind = below(2) ? "MaxPool" : "AveragePool";
        const int64_t stride = x.size > 3 ? 1 + static_cast<int64_t>(below(2)) : 1;
        const ValueId y =
            op(kind, {x.id}, attributes({{"kernel_shape", each(3)}, {"strides", each(stride)}, {"pads", pads(1)}}));
        values_.push_back({y, x.channels, (x.size - 1) / stride + 1});
        return;
      }
      case 11: {
        const ValueId mean = op("GlobalAveragePool", {x.id});
        return keep(x, op("Mul", {x.id, op("HardSigmoid", {mean})}));
      }
      case 12: {
        std::vector<double> scales{1, 1};
        scales.resize(2 + space_, 2);
        if (x.size > 12) return;
        const ValueId y = op(
            "Resize",
            {x.id, no_value, graph.add_constant(tensor(DType::f32, {static_cast<int64_t>(scales.size())}, scales))},
            attributes({{"mode", std::string(below(2) ? "nearest" : "linear")},
                        {"coordinate_transformation_mode", std::string("asymmetric")},
                        {"nearest_mode", std::string("floor")}}));
        values_.push_back({y, x.channels, 2 * x.size});
        return;
      }
      case 13: {
        if (x.channels < 2) return;
        Node& node =
            graph.add_node("Split", {x.id, ints({1, x.channels - 1})}, 2, attributes({{"axis", int64_t{1}}}));
        values_.push_back({node.outputs[0], 1, x.size});
        values_.push_back({node.outputs[1], x.channels - 1, x.size});
        return;
      }
      case 14: {
        if (x.size < 4) return;
        const ValueId y = op("Slice", {x.id, ints({1}), ints({x.size}), ints({2})});
        return keep(x, op("Pad", {y, ints({1, 0}), no_value, ints({-static_cast<int64_t>(space_)})}));
      }
      case 15:
        return keep(x,
                    op("Sub", {x.id, op("ReduceMean", {x.id, ints({1})}, attributes({{"keepdims", int64_t{1}}}))}));
      case 16: return keep(x, op("Mul", {channel_row(x.channels), x.id}));
      default: {
        Ints order{0, 1};
        for (size_t i = space_; i-- > 0;) order.push_back(static_cast<int64_t>(2 + i));
        return keep(x, op("Transpose", {x.id}, attributes({{"perm", order}})));
      }
    }
  }
  void keep(const Image& x, ValueId y) { values_.push_back({y, x.channels, x.size}); }
  void convolve(const Image& x) {
    const int64_t kernel = below(2) ? 3 : 1, stride = x.size > 4 ? 1 + static_cast<int64_t>(below(2)) : 1;
    const bool by_channel = below(3) == 0;
    const int64_t made = by_channel ? x.channels : 1 + static_cast<int64_t>(below(9));
    Shape w{made, by_channel ? 1 : x.channels};
    for (size_t i = 0; i < space_; ++i) w.push_back(kernel);
    std::vector<ValueId> inputs{x.id, weight(w)};
    if (below(2)) inputs.push_back(weight({made}));
    const ValueId y = op("Conv", inputs,
                         attributes({{"pads", pads(kernel / 2)},
                                     {"strides", each(stride)},
                                     {"group", by_channel ? x.channels : int64_t{1}}}));
    values_.push_back({y, made, (x.size - 1) / stride + 1});
  }

  std::mt19937 random_;
  size_t space_;
  std::vector<Image> values_;
};

std::vector<Tensor> run(const Graph& graph, const Tensor& x, std::set<std::string> off,
                        std::vector<std::string>* ops = nullptr) {
  CompileOptions options = World::get().options();
  options.off = std::move(off);
  const PlainModel model = compile_plain(graph, options);
  if (ops)
    for (const Instruction& one : model.program->instructions) ops->push_back(one.kernel ? one.kernel->op : "");
  ThreadPool pool(2);
  Store store;
  store.load(*model.program, {}, &pool);
  Executor executor(model.program, store, pool);
  const std::vector<TensorView> inputs{x.view()};
  executor.run(inputs);
  std::vector<Tensor> out;
  for (size_t i = 0; i < model.program->outputs.size(); ++i) {
    const TensorView view = executor.output(static_cast<int>(i));
    Tensor& copy = out.emplace_back(view.dtype, view.shape);
    if (view.bytes()) std::memcpy(copy.data(), view.data, static_cast<size_t>(view.bytes()));
  }
  return out;
}

TEST(PlainPasses, KeepWhatNetworksCompute) {
  int convolutions = 0, joined = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    NetworkMaker maker(seed, 1 + seed % 2);
    maker.grow(12);
    Shape shape{2, 6, 11};
    if (seed % 2) shape.push_back(11);
    const Tensor x = random_tensor(DType::f32, shape, seed);
    std::vector<std::string> ops;
    const std::vector<Tensor> plain = run(maker.graph, x, {"channels_last", "chains"}),
                              one = run(maker.graph, x, {"channels_last"}), both = run(maker.graph, x, {}, &ops);
    convolutions += static_cast<int>(std::count(ops.begin(), ops.end(), "plait.ChannelsLastConv"));
    joined += static_cast<int>(std::count(ops.begin(), ops.end(), "plait.Elementwise"));
    for (size_t i = 0; i < plain.size(); ++i) {
      test::expect_near(one[i], plain[i], 1e-4, 1e-4);
      test::expect_near(both[i], plain[i], 1e-4, 1e-4);
    }
  }
  EXPECT_GT(convolutions, 100);
  EXPECT_GT(joined, 20);
}

Tensor as(const Tensor& tensor, DType dtype) {
  return materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, dtype}}});
}
/// Makes a graph of f32 one of another type: its inputs and constants of floats, but scales of a Resize.
void narrow(Graph& graph, DType dtype) {
  std::set<ValueId> scales;
  for (const Node& node : graph.nodes)
    if (node.op == "Resize") scales.insert(node.inputs[2]);
  for (ValueId id : graph.inputs) graph.value(id).type.dtype = dtype;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    auto& constant = graph.value(id).constant;
    if (!constant || constant->dtype() != DType::f32 || scales.count(id)) continue;
    constant = std::make_shared<Constant>(Constant{{}, as(materialize(*constant), dtype), {}});
    graph.value(id).type.dtype = dtype;
  }
}

/// Networks of 16 bits compute in f32 and round each result: next to the reference's kernels of 16 bits.
TEST(PlainPasses, ComputeHalvesInF32) {
  for (uint32_t seed = 0; seed < 20; ++seed)
    for (DType dtype : {DType::f16, DType::bf16}) {
      SCOPED_TRACE(cat("seed ", seed, " ", dtype_name(dtype)));
      NetworkMaker maker(seed, 2);
      maker.grow(6);
      Graph& graph = maker.graph;
      narrow(graph, dtype);
      const Tensor input = as(random_tensor(DType::f32, {2, 6, 11, 11}, seed), dtype);
      std::vector<std::string> ops;
      const std::vector<Tensor> plain = run(graph, input, {"in_f32", "channels_last", "chains"}),
                                both = run(graph, input, {}, &ops);
      // Roundings of 11 or 8 bits in each of the ops, which other orders of sums may turn the other way.
      const double tolerance = dtype == DType::f16 ? 0.01 : 0.08;
      for (size_t i = 0; i < plain.size(); ++i) test::expect_near(both[i], plain[i], tolerance, tolerance);
    }
}

/// softmax(q k scale + mask) v in the ways that exporters spell it, and where it is something else.
struct SpelledAttention {
  std::string keys = "perm 0 2 3 1";  ///< of [b, t, h, d]; or "perm 0 1 3 2" of [b, h, t, d]; or "as they are"
  std::string scale = "Mul";          ///< "", "Mul", "number * scores" or "Div"
  std::string mask;                   ///< "", or of these sizes: "rows" [b, 1, 1, t], "one" [1], "table" [s, t]
  int64_t axis = -1;
  bool one_head = false;  ///< keys and values have one head, queries two
  bool shows_scores = false;

  Graph graph() const {
    Graph out;
    const ValueId x = out.add_value("x", {DType::f32, Dims{out.symbol("batch"), Dim(7), Dim(12)}});
    out.inputs = {x};
    auto op = [&](const std::string& name, std::vector<ValueId> inputs, const char* key = nullptr,
                  Attribute value = {}) {
      Attributes how;
      if (key) how.set(key, std::move(value));
      return out.add_node(name, std::move(inputs), 1, std::move(how)).outputs[0];
    };
    auto numbers = [&](const Shape& shape, uint32_t seed) {
      return out.add_constant(random_tensor(DType::f32, shape, seed, -1, 1));
    };
    auto heads = [&](uint32_t seed, int64_t count, Ints order) {
      const ValueId all = op("MatMul", {x, numbers({12, count * 6}, seed)});
      const ValueId split = op("Reshape", {all, out.add_constant(Tensor::of_ints(Ints{0, 0, count, 6}))});
      return op("Transpose", {split}, "perm", std::move(order));
    };
    const int64_t kv = one_head ? 1 : 2;
    const ValueId q = heads(1, 2, {0, 2, 1, 3}), v = heads(3, kv, {0, 2, 1, 3});
    ValueId k = heads(2, kv, keys == "perm 0 1 3 2" ? Ints{0, 2, 1, 3} : Ints{0, 2, 3, 1});
    if (keys == "perm 0 1 3 2") k = op("Transpose", {k}, "perm", Ints{0, 1, 3, 2});
    if (keys == "as they are") k = op("Neg", {k});
    ValueId scores = op("MatMul", {q, k});
    const ValueId by = out.add_constant(tensor(DType::f32, {}, {scale == "Div" ? 2.5 : 0.4}));
    if (scale == "number * scores") scores = op("Mul", {by, scores});
    else if (!scale.empty()) scores = op(scale, {scores, by});
    if (shows_scores) out.outputs.push_back(scores);
    if (mask == "rows") {
      const ValueId first = op("ReduceMax", {x, out.add_constant(Tensor::of_ints(Ints{2}))}, "keepdims", int64_t{0});
      scores = op("Add", {scores, op("Unsqueeze", {first, out.add_constant(Tensor::of_ints(Ints{1, 2}))})});
    } else if (!mask.empty()) {
      scores = op("Add", {numbers(mask == "one" ? Shape{1} : Shape{7, 7}, 5), scores});
    }
    const ValueId parts = op("Softmax", {scores}, "axis", axis);
    out.outputs.push_back(op("Relu", {op("MatMul", {parts, v})}));
    return out;
  }
};

TEST(PlainPasses, AttentionIsRecognised) {
  const std::vector<SpelledAttention> all{{},
                                          {.keys = "perm 0 1 3 2", .scale = "Div"},
                                          {.keys = "as they are", .scale = "number * scores"},
                                          {.scale = "", .mask = "rows"},
                                          {.scale = "Div", .mask = "one"},
                                          {.mask = "table", .axis = 3}};
  const std::vector<SpelledAttention> others{{.axis = 2}, {.one_head = true}, {.shows_scores = true}};
  const Tensor x = random_tensor(DType::f32, {3, 7, 12}, 9);
  for (const auto* list : {&all, &others})
    for (const SpelledAttention& one : *list) {
      SCOPED_TRACE(cat(one.keys, ", ", one.scale, ", ", one.mask, ", ", one.axis));
      const Graph graph = one.graph();
      std::vector<std::string> ops;
      const std::vector<Tensor> expected = run(graph, x, {"attend"}), got = run(graph, x, {}, &ops);
      EXPECT_EQ(std::count(ops.begin(), ops.end(), "Attention"), list == &all ? 1 : 0);
      for (size_t i = 0; i < expected.size(); ++i) test::expect_near(got[i], expected[i], 1e-5, 1e-5);
    }
}

/// Ops of com.microsoft next to their steps, which no longer have them; of 16 bits, too.
class FusedOps : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, FusedOps, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });
TEST_P(FusedOps, BecomeTheirSteps) {
  Graph graph;
  const Dim b = graph.symbol("batch");
  const ValueId x = graph.add_value("x", {DType::f32, Dims{b, Dim(5), Dim(8)}});
  graph.inputs = {x};
  uint32_t seed = 0;
  auto constant = [&](const Shape& shape) {
    return graph.add_constant(random_tensor(DType::f32, shape, ++seed, 0.1, 1));
  };
  auto op = [&](const std::string& name, std::vector<ValueId> inputs, Attributes how = {}, int outputs = 1) {
    return graph.add_node("com.microsoft." + name, std::move(inputs), outputs, std::move(how)).outputs;
  };
  auto attributes = [](std::initializer_list<std::pair<const char*, Attribute>> all) {
    Attributes out;
    for (const auto& [name, value] : all) out.set(name, value);
    return out;
  };
  std::vector<ValueId> y{x, op("BiasGelu", {x, constant({8})})[0], op("FastGelu", {x, constant({8})})[0],
                         op("QuickGelu", {x}, attributes({{"alpha", 1.5}}))[0], op("Gelu", {x})[0]};
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<ValueId> made =
        op("SkipLayerNormalization", {y[i], y[i + 1], constant({8}), i % 2 ? constant({8}) : no_value, constant({8})},
           {}, 4);
    y.push_back(made[0]);
    if (i == 1) y.push_back(made[3]);
  }
  y.push_back(op("SkipSimplifiedLayerNormalization", {y[1], constant({5, 8}), constant({8})})[0]);
  for (int64_t turned : {0, 1})
    for (int64_t inside : {0, 1}) {
      const Shape right =
          inside ? Shape{turned ? 3 : 8, 2, turned ? 8 : 3} : Shape{2, turned ? 3 : 8, turned ? 8 : 3};
      const Attributes how = attributes({{"alpha", 0.5}, {"transB", turned}, {"transBatchB", inside}});
      const ValueId left =
          graph
              .add_node("Expand",
                        {graph.add_node("Unsqueeze", {x, graph.add_constant(Tensor::of_ints(Ints{1}))}).outputs[0],
                         graph.add_constant(Tensor::of_ints(Ints{1, 2, 1, 1}))})
              .outputs[0];
      y.push_back(op("FusedMatMul", {left, constant(right)}, how)[0]);
    }
  y.push_back(op("MultiHeadAttention", {y[0], y[1], y[2], constant({24}), no_value, constant({1, 2, 5, 5})},
                 attributes({{"num_heads", int64_t{2}}}))[0]);
  graph.outputs = {y.begin() + 1, y.end()};
  narrow(graph, GetParam());
  const Tensor input = as(random_tensor(DType::f32, {3, 5, 8}, 7), GetParam());
  std::vector<std::string> ops;
  const std::vector<Tensor> whole = run(graph, input, {"in_f32", "spell_fused", "chains"}),
                            steps = run(graph, input, {}, &ops);
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 0.01 : 0.08;
  for (size_t i = 0; i < whole.size(); ++i) test::expect_near(steps[i], whole[i], tolerance, tolerance);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "Attention"), 1);
  for (const std::string& name : ops) EXPECT_FALSE(name.starts_with("com.microsoft.")) << name;
}

/// What a convolutional block of exporters becomes: two instructions between the Transposes of the ends.
TEST(PlainPasses, BlockOfExportersIsFused) {
  Graph graph;
  const ValueId x = graph.add_value("x", {DType::f32, Dims{Dim(1), Dim(8), Dim(10), Dim(10)}});
  graph.inputs = {x};
  auto constant = [&](const Shape& shape) { return graph.add_constant(random_tensor(DType::f32, shape, 3, 0.1, 1)); };
  auto op = [&](const std::string& name, std::vector<ValueId> inputs) {
    return graph.add_node(name, std::move(inputs)).outputs[0];
  };
  auto norm = [&](ValueId id) {
    return op("BatchNormalization", {id, constant({8}), constant({8}), constant({8}), constant({8})});
  };
  const ValueId first = op("Relu", {norm(op("Conv", {x, constant({8, 8, 1, 1})}))});
  graph.outputs = {op("Relu", {op("Add", {norm(op("Conv", {first, constant({8, 8, 1, 1})})), x})})};
  std::vector<std::string> ops;
  run(graph, random_tensor(DType::f32, {1, 8, 10, 10}, 1), {}, &ops);
  EXPECT_EQ(ops,
            (std::vector<std::string>{"Transpose", "plait.ChannelsLastConv", "plait.ChannelsLastConv", "Transpose"}));
}

/// Convolutions and products on codes round once where those on numbers round the same sums in f32: a step apart at most.
TEST(PlainPasses, WhatIsBetweenCodesComputesOnThem) {
  struct Net {
    DType x, w;
    bool channels;
    std::string bias;   ///< "", "codes" or "numbers"
    std::string after;  ///< "", or "Relu"
    double zero;        ///< of the results
    int integers;       ///< ops on codes
  };
  const Net nets[] = {{DType::u8, DType::i8, true, "codes", "Relu", 0, 5},
                      {DType::u8, DType::u8, false, "", "", 100, 5},
                      {DType::i8, DType::i8, true, "numbers", "Relu", -128, 5},
                      {DType::u8, DType::i8, false, "numbers", "", 128, 5},
                      {DType::i8, DType::i8, false, "codes", "Relu", 3, 4}};
  uint32_t seed = 0;
  for (const Net& net : nets) {
    SCOPED_TRACE(cat(dtype_name(net.x), " ", dtype_name(net.w), " ", net.after, " ", net.zero));
    Graph graph;
    const ValueId x = graph.add_value("x", {DType::f32, Dims{Dim(2), Dim(4), Dim(9), Dim(9)}});
    graph.inputs = {x};
    auto op = [&](const std::string& name, std::vector<ValueId> inputs, const char* key = nullptr,
                  Attribute value = {}) {
      Attributes how;
      if (key) how.set(key, std::move(value));
      return graph.add_node(name, std::move(inputs), 1, std::move(how)).outputs[0];
    };
    auto number = [&](DType dtype, double value) { return graph.add_constant(tensor(dtype, {}, {value})); };
    auto through = [&](ValueId value, double scale, double zero) {
      const ValueId codes = op("QuantizeLinear", {value, number(DType::f32, scale), number(net.x, zero)});
      return op("DequantizeLinear", {codes, number(DType::f32, scale), number(net.x, zero)});
    };
    auto weight = [&](const Shape& shape, int64_t axis, const Tensor& scale) {
      Tensor codes =
          random_tensor(net.w, shape, ++seed, net.w == DType::u8 ? 0 : -128, net.w == DType::u8 ? 256 : 128);
      return op("DequantizeLinear", {graph.add_constant(std::move(codes)), graph.add_constant(scale)}, "axis", axis);
    };
    const Tensor scale = random_tensor(DType::f32, net.channels ? Shape{6} : Shape{}, ++seed, 0.001, 0.01);
    ValueId bias = no_value;
    if (net.bias == "numbers") bias = graph.add_constant(random_tensor(DType::f32, {6}, ++seed, -0.2, 0.2));
    if (net.bias == "codes") {
      Tensor of_sums(DType::f32, scale.shape());
      for (int64_t i = 0; i < scale.elements(); ++i) of_sums.as<float>()[i] = scale.as<float>()[i] * 0.02f;
      bias = op("DequantizeLinear",
                {graph.add_constant(random_tensor(DType::i32, {6}, ++seed, -900, 900)), graph.add_constant(of_sums)},
                "axis", int64_t{0});
    }
    std::vector<ValueId> operands{through(x, 0.02, net.x == DType::u8 ? 128 : 5), weight({6, 4, 3, 3}, 0, scale)};
    if (bias != no_value) operands.push_back(bias);
    ValueId y = op("Conv", operands, "pads", Ints{1, 1, 1, 1});
    if (!net.after.empty()) y = op(net.after, {y});
    y = through(y, 0.03, net.zero);
    const ValueId rows = op("Reshape", {y, graph.add_constant(Tensor::of_ints(Ints{108, 9}))});
    const ValueId again = through(rows, 0.05, 7);
    const Tensor columns = random_tensor(DType::f32, net.channels ? Shape{5} : Shape{}, ++seed, 0.001, 0.01);
    const ValueId product = op("MatMul", {again, weight({9, 5}, 1, columns)});
    graph.outputs = {y, through(op("MatMul", {again, weight({9, 5}, 1, columns)}), 0.01, 9),
                     op("Sqrt", {op("Abs", {product})})};
    for (int64_t turned : {0, 1}) {
      const Shape rows_first = turned ? Shape{5, 9} : Shape{9, 5};
      std::vector<ValueId> terms{again, weight(rows_first, 1 - turned, columns)};
      if (turned) terms.push_back(graph.add_constant(random_tensor(DType::f32, {5}, ++seed, -0.2, 0.2)));
      const ValueId sum = op("Gemm", terms, "transB", turned);
      graph.outputs.push_back(turned ? through(op("Relu", {sum}), 0.01, 9) : sum);
    }
    std::vector<std::string> ops;
    const Tensor input = random_tensor(DType::f32, {2, 4, 9, 9}, ++seed, -2, 2);
    const std::vector<Tensor> plain = run(graph, input, {"in_codes"}), codes = run(graph, input, {}, &ops);
    const std::vector<std::string> on_codes{"QLinearConv", "QLinearMatMul", "MatMulInteger"};
    EXPECT_EQ(
        std::count_if(ops.begin(), ops.end(),
                      [&](const std::string& one) { return std::ranges::find(on_codes, one) != on_codes.end(); }),
        net.integers);
    test::expect_near(codes[0], plain[0], 0, 0.0301);
    // The products read what may be a step of 0.05 off.
    test::expect_near(codes[1], plain[1], 0, 0.2);
    test::expect_near(codes[2], plain[2], 0, 0.5);
    for (size_t k : {size_t{3}, size_t{4}}) test::expect_near(codes[k], plain[k], 0, 0.2);
  }
}

/// A bias that is longer than its scales is what an error is about, and is not read with them.
TEST(PlainPasses, BiasOfAnotherLengthThanItsScalesIsRefused) {
  Graph graph;
  const ValueId x = graph.add_value("x", {DType::f32, Dims{Dim(1), Dim(4), Dim(5), Dim(5)}});
  graph.inputs = {x};
  auto op = [&](const std::string& name, std::vector<ValueId> inputs, Attributes how = {}) {
    return graph.add_node(name, std::move(inputs), 1, std::move(how)).outputs[0];
  };
  const ValueId scale = graph.add_constant(tensor(DType::f32, {}, {0.03})),
                zero = graph.add_constant(tensor(DType::u8, {}, {77})),
                weight = op("DequantizeLinear",
                            {graph.add_constant(random_tensor(DType::i8, {6, 4, 1, 1}, 1, -128, 128)),
                             graph.add_constant(random_tensor(DType::f32, {6}, 2, 0.01, 0.02))},
                            attributes({{"axis", int64_t{0}}}));
  const ValueId codes = op("QuantizeLinear", {x, scale, zero}), again = op("DequantizeLinear", {codes, scale, zero});
  const ValueId y = op("Conv", {again, weight, graph.add_constant(random_tensor(DType::f32, {100000}, 3))});
  graph.outputs = {op("QuantizeLinear", {y, scale, zero})};
  EXPECT_THROW(run(graph, random_tensor(DType::f32, {1, 4, 5, 5}, 4), {}), Error);
}

/// Casts and DequantizeLinear are how a chain reads, also after a convolution; QuantizeLinear is how it ends.
TEST(PlainPasses, ChainsReadIntegersAndMakeCodes) {
  for (DType dtype : {DType::u8, DType::i8}) {
    Graph graph;
    const ValueId x = graph.add_value("x", {DType::f32, Dims{Dim(1), Dim(4), Dim(9), Dim(9)}});
    graph.inputs = {x};
    auto op = [&](const std::string& name, std::vector<ValueId> inputs, Attributes how = {}) {
      return graph.add_node(name, std::move(inputs), 1, std::move(how)).outputs[0];
    };
    const ValueId scale = graph.add_constant(tensor(DType::f32, {}, {0.03})),
                  zero = graph.add_constant(tensor(dtype, {}, {dtype == DType::u8 ? 77.0 : -5.0}));
    const ValueId weight = graph.add_constant(random_tensor(DType::f32, {4, 4, 1, 1}, 3));
    const ValueId first = op("Conv", {x, weight}), codes = op("QuantizeLinear", {first, scale, zero});
    auto numbers = [&] { return op("DequantizeLinear", {codes, scale, zero}); };
    auto cast = [&](ValueId from, DType to) {
      return op("Cast", {from}, attributes({{"to", static_cast<int64_t>(to)}}));
    };
    graph.outputs = {op("QuantizeLinear", {op("Mul", {op("HardSwish", {numbers()}), first}), scale, zero}),
                     op("Relu", {op("Add", {op("Conv", {first, weight}), numbers()})}),
                     op("Mul", {cast(cast(x, DType::i32), DType::f32), x})};
    std::vector<std::string> ops;
    const Tensor input = random_tensor(DType::f32, {1, 4, 9, 9}, 2, -4, 4);
    const std::vector<Tensor> plain = run(graph, input, {"chains"}), chains = run(graph, input, {}, &ops);
    for (size_t i = 0; i < plain.size(); ++i) test::expect_equal_bits(chains[i], plain[i]);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "QuantizeLinear"), 1);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "DequantizeLinear"), 0);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "Cast"), 1);
    Tensor odd = input;
    odd.as<float>()[5] = NAN;
    EXPECT_THROW(run(graph, odd, {}), Error);
  }
}

/// Codes between convolutions keep the layout of these, but for those with a scale for each channel.
TEST(PlainPasses, CodesHaveChannelsLast) {
  for (bool by_channel : {false, true}) {
    Graph graph;
    const ValueId x = graph.add_value("x", {DType::f32, Dims{Dim(1), Dim(8), Dim(10), Dim(10)}});
    graph.inputs = {x};
    // Whole numbers: sums are exact in any order.
    auto whole = [&](const Shape& shape, uint32_t seed) {
      Tensor out = random_tensor(DType::f32, shape, seed, -3, 3);
      for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = std::round(out.as<float>()[i]);
      return out;
    };
    auto op = [&](const std::string& name, std::vector<ValueId> inputs) {
      return graph.add_node(name, std::move(inputs)).outputs[0];
    };
    auto scale = [&](bool each) {
      Tensor out(DType::f32, each ? Shape{8} : Shape{});
      for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = std::ldexp(0.5f, static_cast<int>(i % 3));
      return graph.add_constant(std::move(out));
    };
    const ValueId first = op("Conv", {x, graph.add_constant(whole({8, 8, 3, 3}, 1))});
    const ValueId zero = graph.add_constant(Tensor(DType::i8, by_channel ? Shape{8} : Shape{}));
    const ValueId codes = op("QuantizeLinear", {first, scale(by_channel), zero});
    const ValueId again = op("DequantizeLinear", {codes, scale(by_channel), zero});
    graph.outputs = {op("Conv", {op("Relu", {again}), graph.add_constant(whole({8, 8, 1, 1}, 2))})};
    const Tensor input = whole({1, 8, 10, 10}, 3);
    std::vector<std::string> ops;
    const std::vector<Tensor> plain = run(graph, input, {"channels_last"}), last = run(graph, input, {}, &ops);
    test::expect_equal_bits(last[0], plain[0]);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "Transpose"), by_channel ? 4 : 2);
  }
}

}  // namespace
}  // namespace plait::test

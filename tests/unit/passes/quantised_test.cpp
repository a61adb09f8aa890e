// Every spelling of a quantised weight becomes one: plait.Linear or plait.Embedding over the packed codes, with the
// numbers that the file's own ops give.
#include <gtest/gtest.h>

#include "core/passes/compile.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/raise/raiser.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/models.h"

namespace plait::test::quantised_forms {
namespace {

constexpr int64_t k = 64, n = 6;

/// A graph of one product of x [2, 3, k] (or of ids [2, 3]) with weights that count as a file's.
class Spelling {
 public:
  Graph graph;
  ValueId x = graph.add_value("x", {DType::f32, Dims{2, 3, k}}),
          ids = graph.add_value("ids", {DType::i64, Dims{2, 3}});

  Spelling() { graph.inputs = {x, ids}; }

  ValueId codes(DType dtype, Shape shape) {
    Tensor made(dtype, shape);
    std::mt19937_64 engine(++seed_);
    for (int64_t i = 0; i < made.bytes(); ++i) made.as<uint8_t>()[i] = static_cast<uint8_t>(engine());
    return weight(made);
  }
  ValueId scales(Shape shape, DType dtype = DType::f32) {
    return weight(random_tensor(dtype, shape, ++seed_, -0.02, 0.03));
  }
  ValueId weight(Tensor tensor) {
    std::string name = cat("w", ++seed_);
    return graph.add_constant(Constant{name, std::move(tensor), {}}, name);
  }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, const Attributes& attributes = {}) {
    return graph.add_node(name, std::move(inputs), 1, attributes).outputs[0];
  }

  /// Expects one node of `op` over codes of `dtype`, and what the graph gave before within a relative `tolerance`.
  void expect(ValueId y, const std::string& op, DType dtype, double tolerance = 1e-5) {
    const World& world = World::get();
    graph.outputs = {y};
    CompileOptions options{world.ops, world.kernels};
    PassContext context{options, {}, {}, true};
    fold(graph, context);
    const Tensor before = run();
    if (drop_rounding(graph)) fold(graph, context);
    raise_quantised(graph, true);
    context.keep_quantised = false;
    fold(graph, context);
    verify(graph, "raise_quantised");
    const Node* found = nullptr;
    for (const Node& node : graph.nodes) {
      if (node.op == op) found = &node;
      else EXPECT_EQ(node.op, "Add") << text(graph);
    }
    ASSERT_TRUE(found) << text(graph);
    const Value& weight = graph.value(found->inputs[op == "plait.Linear" ? 1 : 0]);
    EXPECT_EQ(weight.type.dtype, dtype);
    EXPECT_EQ(weight.constant->shape().rank(), 3);
    const Tensor after = run();
    ASSERT_EQ(after.shape(), before.shape());
    double error = 0, size = 0;
    for (int64_t i = 0; i < before.elements(); ++i) {
      error = std::max<double>(error, std::abs(after.as<float>()[i] - before.as<float>()[i]));
      size = std::max<double>(size, std::abs(before.as<float>()[i]));
    }
    EXPECT_LE(error, tolerance * size);
  }

 private:
  Tensor run() {
    const World& world = World::get();
    const CompileOptions options = world.options();
    const PassContext context{options, {}, {}};
    Evaluator evaluator(context, graph);
    evaluator.bind(x, random_tensor(DType::f32, {2, 3, k}, 77));
    evaluator.bind(ids, Tensor::of<int64_t>(DType::i64, {2, 3}, std::vector<int64_t>{0, 5, 2, 2, 1, 4}));
    return evaluator.value(graph.outputs[0]);
  }
  uint64_t seed_ = 0;
};

Attributes bits_of(int64_t bits, int64_t block) {
  return attributes({{"K", k}, {"N", n}, {"bits", bits}, {"block_size", block}});
}

TEST(Quantised, MatMulNBits) {
  for (int64_t bits : {2, 4, 8})
    for (int64_t block : {16, 32, 64}) {
      SCOPED_TRACE(cat(bits, " bits, blocks of ", block));
      const int64_t blocks = k / block, zero_bytes = (blocks * bits + 7) / 8;
      const DType dtype = bits == 2 ? DType::u2 : bits == 4 ? DType::u4 : DType::u8;
      const Shape shape{n, blocks, block * bits / 8};
      Spelling plain, flat, points, floats, half;
      plain.expect(
          plain.op("com.microsoft.MatMulNBits", {plain.x, plain.codes(DType::u8, shape), plain.scales({n, blocks})},
                   bits_of(bits, block)),
          "plait.Linear", dtype);
      flat.expect(flat.op("com.microsoft.MatMulNBits",
                          {flat.x, flat.codes(DType::u8, shape), flat.scales({n * blocks}), no_value, no_value,
                           flat.scales({n})},
                          bits_of(bits, block)),
                  "plait.Linear", dtype);
      points.expect(points.op("com.microsoft.MatMulNBits",
                              {points.x, points.codes(DType::u8, shape), points.scales({n, blocks}),
                               points.codes(DType::u8, {n * zero_bytes})},
                              bits_of(bits, block)),
                    "plait.Linear", dtype);
      floats.expect(floats.op("com.microsoft.MatMulNBits",
                              {floats.x, floats.codes(DType::u8, shape), floats.scales({n, blocks}),
                               floats.scales({n * blocks})},
                              bits_of(bits, block)),
                    "plait.Linear", dtype);
    }
}

TEST(Quantised, DequantisedConstants) {
  struct Case {
    DType dtype;
    Shape codes, scales;
    int64_t axis, block;
    bool transpose, zeros;
  };
  const Case cases[] = {
      {DType::i4, {k, n}, {k / 32, n}, 0, 32, false, false}, {DType::u4, {k, n}, {k / 16, n}, 0, 16, false, true},
      {DType::i4, {n, k}, {n, k / 32}, 1, 32, true, false},  {DType::u4, {n, k}, {n, k / 32}, -1, 32, true, true},
      {DType::i8, {k, n}, {n}, 1, 0, false, true},           {DType::u8, {k, n}, {}, 1, 0, false, true},
      {DType::i8, {n, k}, {n}, 0, 0, true, false},           {DType::i8, {k, n}, {1}, 1, 0, false, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(cat(dtype_name(c.dtype), " ", c.codes.text(), " scales ", c.scales.text()));
    Spelling s;
    std::vector<ValueId> operands{s.codes(c.dtype, c.codes), s.scales(c.scales)};
    if (c.zeros) operands.push_back(s.codes(c.dtype, c.scales));
    ValueId w = s.op("DequantizeLinear", operands, attributes({{"axis", c.axis}, {"block_size", c.block}}));
    if (c.transpose) w = s.op("Transpose", {w}, attributes({{"perm", std::vector<int64_t>{1, 0}}}));
    s.expect(s.op("MatMul", {s.x, w}), "plait.Linear", c.dtype);
  }
}

TEST(Quantised, GemmWithBias) {
  Spelling s;
  ValueId w =
      s.op("DequantizeLinear", {s.codes(DType::i8, {n, k}), s.scales({n})}, attributes({{"axis", int64_t{0}}}));
  ValueId flat = s.op("Reshape", {s.x, s.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{6, k}))});
  s.graph.outputs = {s.op("Gemm", {flat, w, s.scales({n})}, attributes({{"transB", int64_t{1}}}))};
  const World& world = World::get();
  CompileOptions options{world.ops, world.kernels};
  PassContext context{options, {}, {}, true};
  fold(s.graph, context);
  raise_quantised(s.graph, true);
  ASSERT_EQ(s.graph.nodes.size(), 3u) << text(s.graph);
  EXPECT_EQ(s.graph.nodes[1].op, "plait.Linear");
  EXPECT_EQ(s.graph.nodes[2].op, "Add");
}

TEST(Quantised, Tables) {
  for (int64_t bits : {4, 8}) {
    Spelling plain, points;
    const Shape shape{n, k * bits / 8};
    const DType dtype = bits == 4 ? DType::u4 : DType::u8;
    const Attributes said = attributes({{"bits", bits}, {"block_size", int64_t{32}}});
    plain.expect(plain.op("com.microsoft.GatherBlockQuantized",
                          {plain.codes(DType::u8, shape), plain.ids, plain.scales({n, k / 32})}, said),
                 "plait.Embedding", dtype);
    points.expect(points.op("com.microsoft.GatherBlockQuantized",
                            {points.codes(DType::u8, shape), points.ids, points.scales({n, k / 32}),
                             points.codes(DType::u8, {n, k / 32 * bits / 8})},
                            said),
                  "plait.Embedding", dtype);
  }
  Spelling words, whole;
  words.expect(words.op("com.microsoft.GatherBlockQuantized",
                        {words.codes(DType::i4, {n, k}), words.ids, words.scales({n, k / 16})},
                        attributes({{"block_size", int64_t{16}}})),
               "plait.Embedding", DType::i4);
  ValueId table = whole.op("DequantizeLinear", {whole.codes(DType::i8, {n, k}), whole.scales({n})},
                           attributes({{"axis", int64_t{0}}}));
  whole.expect(whole.op("Gather", {table, whole.ids}), "plait.Embedding", DType::i8);
}

/// Activations in 8 bits of their range: an error of up to half a step a number, some 1 / 500 of the largest.
constexpr double rounded_activations = 0.02;

TEST(Quantised, DynamicActivationsAreNotRounded) {
  for (bool channels : {false, true}) {
    Spelling s;
    auto dynamic = s.graph.add_node("DynamicQuantizeLinear", {s.x}, 3).outputs;
    const Shape of = channels ? Shape{n} : Shape{};
    ValueId product =
        s.op("MatMulInteger", {dynamic[0], s.codes(DType::u8, {k, n}), dynamic[2], s.codes(DType::u8, of)});
    ValueId scale = s.op("Mul", {dynamic[1], s.scales(of)});
    ValueId real = s.op("Cast", {product}, attributes({{"to", int64_t{1}}}));
    s.expect(s.op("Mul", {real, scale}), "plait.Linear", DType::u8, rounded_activations);
  }
}

TEST(Quantised, StaticActivationsAreNotRounded) {
  Spelling s;
  ValueId step = s.weight(tensor(DType::f32, {}, {1.0 / 127})), zero = s.weight(tensor(DType::i8, {}, {0}));
  ValueId again = s.weight(tensor(DType::f32, {}, {1.0 / 127}));
  ValueId x = s.op("DequantizeLinear", {s.op("QuantizeLinear", {s.x, step, zero}), again, zero});
  ValueId w = s.op("DequantizeLinear", {s.codes(DType::i8, {k, n}), s.scales({})});
  s.expect(s.op("MatMul", {x, w}), "plait.Linear", DType::i8, rounded_activations);
}

TEST(Quantised, AnotherScaleIsNoRounding) {
  Spelling s;
  ValueId step = s.weight(tensor(DType::f32, {}, {0.5})), zero = s.weight(tensor(DType::i8, {}, {0}));
  ValueId other = s.weight(tensor(DType::f32, {}, {0.25}));
  s.graph.outputs = {s.op("DequantizeLinear", {s.op("QuantizeLinear", {s.x, step, zero}), other, zero})};
  EXPECT_FALSE(drop_rounding(s.graph));
}

TEST(Quantised, ScalesThatAreBf16AreStoredSo) {
  Spelling s;
  Tensor scales = random_tensor(DType::f32, {n, k / 32}, 5);
  scales = materialize(
      {{}, scales, {{RecipeStep::Kind::cast, {}, DType::bf16}, {RecipeStep::Kind::cast, {}, DType::f32}}});
  ValueId y =
      s.op("com.microsoft.MatMulNBits", {s.x, s.codes(DType::u8, {n, k / 32, 16}), s.weight(scales)}, bits_of(4, 32));
  s.expect(y, "plait.Linear", DType::u4);
  EXPECT_EQ(s.graph.value(s.graph.nodes[0].inputs[3]).type.dtype, DType::bf16);
}

TEST(Quantised, SmallBlocksAreComputed) {
  Spelling s;
  ValueId w = s.op("DequantizeLinear", {s.codes(DType::i4, {k, n}), s.scales({k / 8, n})},
                   attributes({{"axis", int64_t{0}}, {"block_size", int64_t{8}}}));
  s.graph.outputs = {s.op("MatMul", {s.x, w})};
  const World& world = World::get();
  CompileOptions options{world.ops, world.kernels};
  PassContext context{options, {}, {}, true};
  fold(s.graph, context);
  EXPECT_EQ(s.graph.nodes.size(), 2u);
  raise_quantised(s.graph, true);
  context.keep_quantised = false;
  fold(s.graph, context);
  ASSERT_EQ(s.graph.nodes.size(), 1u);
  EXPECT_EQ(s.graph.nodes[0].op, "MatMul");
}

}  // namespace
}  // namespace plait::test::quantised_forms

#pragma once
// Tiny decoders of one layer, whose attention a test spells as some exporter does.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/generate/engines.h"
#include "tests/unit/support/models.h"

namespace plait::test {

/// Hidden size 8, vocabulary 11. Nodes are named as they are added, "MatMul.3".
class DecoderMaker {
 public:
  static constexpr int64_t hidden = 8, vocabulary = 11;

  Graph graph;
  ValueId ids, mask = no_value;
  std::vector<ValueId> presents;

  explicit DecoderMaker(DType dtype = DType::f32, DType id_dtype = DType::i64) : dtype_(dtype) {
    ids = graph.add_value("input_ids", {id_dtype, Dims{graph.symbol("b"), graph.symbol("s")}});
    graph.inputs.push_back(ids);
  }

  ValueId input(const std::string& name, DType dtype, Dims dims) {
    graph.inputs.push_back(graph.add_value(name, {dtype, std::move(dims)}));
    return graph.inputs.back();
  }
  /// A past input, "past_key_values.0.key" or the like; `present` continues it later.
  ValueId past(const std::string& part, Dims dims) {
    return input("past_key_values.0." + part, dtype_, std::move(dims));
  }
  void present(const std::string& part, ValueId id) {
    graph.value(id).name = "present.0." + part;
    presents.push_back(id);
  }
  Dim dim(const char* symbol) { return graph.symbol(symbol); }

  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return ops(name, std::move(inputs), 1, std::move(attributes))[0];
  }
  std::vector<ValueId> ops(const std::string& name, std::vector<ValueId> inputs, int outputs,
                           Attributes attributes = {}) {
    Node& node = graph.add_node(name, std::move(inputs), outputs, std::move(attributes));
    node.name = name + "." + std::to_string(graph.nodes.size());
    return node.outputs;
  }
  static Attributes with(const char* name, Attribute value) {
    Attributes out;
    out.set(name, std::move(value));
    return out;
  }

  /// Reproducible weights in [-1, 1) / sqrt(rows).
  ValueId weight(std::vector<int64_t> sizes) {
    Shape shape;
    for (int64_t size : sizes) shape.push_back(size);
    std::vector<float> numbers(static_cast<size_t>(shape.elements()));
    for (float& number : numbers) {
      seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
      number = (static_cast<float>(seed_ >> 40) / float{1 << 23} - 1) / std::sqrt(static_cast<float>(sizes[0]));
    }
    Tensor f32 = Tensor::of<float>(DType::f32, shape, numbers);
    return graph.add_constant(materialize({{}, f32, {{RecipeStep::Kind::cast, {}, dtype_}}}));
  }
  ValueId real(double value) {
    Tensor f64 = Tensor::of<double>(DType::f64, Shape{}, {&value, 1});
    return graph.add_constant(materialize({{}, f64, {{RecipeStep::Kind::cast, {}, dtype_}}}));
  }
  ValueId ints(const std::vector<int64_t>& numbers) { return graph.add_constant(Tensor::of_ints(numbers)); }
  ValueId integer(int64_t value) {
    return graph.add_constant(Tensor::of_ints(std::vector<int64_t>{value}).reshaped({}));
  }

  ValueId size(ValueId id, int64_t axis) {
    return op("Gather", {op("Shape", {id}), integer(axis)}, with("axis", int64_t{0}));
  }
  ValueId reshape(ValueId id, const std::vector<int64_t>& sizes) { return op("Reshape", {id, ints(sizes)}); }
  ValueId transpose(ValueId id, std::vector<int64_t> order) {
    return op("Transpose", {id}, with("perm", std::move(order)));
  }
  ValueId concat(std::vector<ValueId> parts, int64_t axis) {
    return op("Concat", std::move(parts), with("axis", axis));
  }
  ValueId unsqueeze(ValueId id, int64_t axis) { return op("Unsqueeze", {id, ints({axis})}); }

  ValueId embedded() { return op("Gather", {weight({vocabulary, hidden}), ids}, with("axis", int64_t{0})); }
  ValueId linear(ValueId x, int64_t from, int64_t to) { return op("MatMul", {x, weight({from, to})}); }
  /// [b, heads, s, d] of x [b, s, hidden].
  ValueId heads(ValueId x, int64_t count, int64_t d) {
    return transpose(reshape(linear(x, hidden, count * d), {0, 0, count, d}), {0, 2, 1, 3});
  }
  struct KeyValue {
    ValueId key, value;
  };
  /// Keys and values [b, heads, s, 4] behind their past [b, heads, p, 4]; both are what the next run gets.
  KeyValue with_past(ValueId key, ValueId value, int64_t heads = 2) {
    Dims dims{dim("b"), heads, dim("p"), 4};
    ValueId past_key = past("key", dims), past_value = past("value", dims);
    KeyValue out{concat({past_key, key}, -2), concat({past_value, value}, -2)};
    present("key", out.key);
    present("value", out.value);
    return out;
  }
  /// A bool [s, total]: keys up to the query's own, or the last `window` of them. `total` is a scalar.
  ValueId visible(ValueId total, int64_t window = 0) {
    ValueId s = size(ids, 1), one = integer(1);
    ValueId keys = op("Range", {integer(0), total, one});
    ValueId queries = unsqueeze(op("Range", {op("Sub", {total, s}), total, one}), 1);
    ValueId seen = op("LessOrEqual", {keys, queries});
    if (window) seen = op("And", {seen, op("Greater", {keys, op("Sub", {queries, integer(window)})})});
    return seen;
  }
  /// softmax(scores) of the keys that are seen.
  ValueId chances(ValueId scores, ValueId seen) {
    return op("Softmax", {op("Where", {seen, scores, real(-10000)})}, with("axis", int64_t{-1}));
  }

  /// Logits of a context [b, s, width], and the end of the graph.
  Graph finish(ValueId context, int64_t width) {
    ValueId logits = linear(op("Tanh", {linear(context, width, hidden)}), hidden, vocabulary);
    graph.value(logits).name = "logits";
    graph.outputs = {logits};
    graph.outputs.insert(graph.outputs.end(), presents.begin(), presents.end());
    return std::move(graph);
  }
  /// The same of a context [b, heads, s, d].
  Graph finish_heads(ValueId context, int64_t count, int64_t d) {
    return finish(reshape(transpose(context, {0, 2, 1, 3}), {0, 0, count * d}), count * d);
  }

 private:
  DType dtype_;
  uint64_t seed_ = 7;
};

inline std::vector<float> logits_of(Engine& engine, const std::vector<int32_t>& ids, size_t chunk) {
  std::vector<float> out;
  auto sequence = engine.open({});
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    std::span<const int32_t> part(ids.data() + begin, std::min(chunk, ids.size() - begin));
    EXPECT_TRUE(engine.reserve(*sequence, static_cast<int64_t>(part.size())));
    Feed feed{sequence.get(), part, static_cast<int64_t>(part.size()), {}, {}};
    engine.step({&feed, 1});
    out.insert(out.end(), feed.logits.begin(), feed.logits.end());
  }
  return out;
}

/// The graph is recognised, and gives the logits that it gives when it runs as it is, with reference kernels, all
/// tokens at once: for any way to cut the tokens into steps.
inline Decoder expect_raised_equals_plain(const Graph& graph, double tolerance = 1e-5) {
  const World& world = World::get();
  KernelTable kernels;
  register_reference_kernels(kernels);
  std::vector<int32_t> ids;
  for (int i = 0; i < 19; ++i) ids.push_back((i * 7 + 3) % DecoderMaker::vocabulary);
  auto plain = make_plain_engine(graph, {world.ops, kernels}, small_engine(), nullptr);
  auto raised = make_engine(graph, world.options(DType::f32), small_engine());
  EXPECT_TRUE(raised->decoder().recognised) << recognise(graph, world.options()).why_not;
  std::vector<float> expected = logits_of(*plain, ids, ids.size());
  for (size_t chunk : {size_t{19}, size_t{1}, size_t{4}}) {
    std::vector<float> got = logits_of(*raised, ids, chunk);
    EXPECT_EQ(got.size(), expected.size());
    double largest = 0, error = 0;
    for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      largest = std::max<double>(largest, std::fabs(expected[i]));
      error = std::max<double>(error, std::fabs(double{got[i]} - double{expected[i]}));
    }
    EXPECT_LT(error, tolerance * largest) << "in steps of " << chunk;
  }
  // As the file has it, in steps: what the engine hands from one run to the next is what the graph wants.
  std::vector<float> steps = logits_of(*plain, ids, 1);
  double error = 0, largest = 1e-9;
  for (size_t i = 0; i < std::min(steps.size(), expected.size()); ++i) {
    largest = std::max<double>(largest, std::fabs(expected[i]));
    error = std::max<double>(error, std::fabs(double{steps[i]} - double{expected[i]}));
  }
  EXPECT_LT(error, std::max(tolerance, 1e-5) * largest) << "plain, token by token";
  return raised->decoder();
}

}  // namespace plait::test

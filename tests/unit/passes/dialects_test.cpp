// Exporters spell one decoder in many ways. Whatever the spelling, the raised program gives the logits of the graph
// as it is written.
#include <gtest/gtest.h>

#include "core/passes/compile.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test {
namespace {

using Maker = DecoderMaker;

struct Cached {
  ValueId query, key, value;
};
Cached cached(Maker& m, int64_t query_heads, int64_t kv_heads) {
  const ValueId x = m.embedded(), query = m.heads(x, query_heads, 4), key = m.heads(x, kv_heads, 4);
  const Maker::KeyValue all = m.with_past(key, m.heads(x, kv_heads, 4), kv_heads);
  return {query, all.key, all.value};
}
ValueId scaled(Maker& m, ValueId scores) { return m.op("Mul", {scores, m.real(0.5)}); }
ValueId keys_by_scores(Maker& m, ValueId query, ValueId key) {
  return scaled(m, m.op("MatMul", {query, m.transpose(key, {0, 1, 3, 2})}));
}

TEST(Dialects, KeysTransposedInThreeDimensionsAndScaledOnBothSides) {
  Maker m;
  Cached c = cached(m, 2, 2);
  ValueId total = m.size(c.key, 2), root = m.op("Sqrt", {m.real(0.5)});
  ValueId flat = m.op("Reshape", {c.key, m.concat({m.ints({-1}), m.unsqueeze(total, 0), m.ints({4})}, 0)});
  flat = m.transpose(flat, {0, 2, 1});
  ValueId batch = m.unsqueeze(m.size(c.key, 0), 0);
  ValueId turned = m.op("Reshape", {flat, m.concat({batch, m.ints({2, 4}), m.unsqueeze(total, 0)}, 0)});
  ValueId scores = m.op("MatMul", {m.op("Mul", {c.query, root}), m.op("Mul", {turned, root})});
  ValueId chances = m.chances(scores, m.visible(total));
  chances = m.op("Where", {m.op("IsNaN", {chances}), m.real(0), chances});
  Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, c.value}), 2, 4));
  ASSERT_EQ(found.layers.size(), 1u);
  EXPECT_NEAR(found.layers[0].scale, 0.5, 1e-6);
}

TEST(Dialects, HeadsRepeatedBehindSlicesOfEverything) {
  Maker m;
  Cached c = cached(m, 4, 2);
  ValueId total = m.size(c.key, 2);
  auto repeated = [&](ValueId id) {
    id = m.op("Slice", {id, m.ints({0}), m.ints({INT64_MAX}), m.ints({2})});
    ValueId wide = m.op("Expand", {m.unsqueeze(id, 2), m.ints({1, 1, 2, 1, 1})});
    return m.op(
        "Reshape",
        {wide, m.concat({m.unsqueeze(m.size(id, 0), 0), m.ints({4}), m.unsqueeze(total, 0), m.ints({4})}, 0)});
  };
  ValueId scores = keys_by_scores(m, c.query, repeated(c.key));
  ValueId context = m.op("MatMul", {m.chances(scores, m.visible(total, 5)), repeated(c.value)});
  Decoder found = expect_raised_equals_plain(m.finish_heads(context, 4, 4));
  ASSERT_EQ(found.layers.size(), 1u);
  EXPECT_EQ(found.layers[0].kv_heads, 2);
  EXPECT_EQ(found.layers[0].window, 5);
}

TEST(Dialects, OneKeyHeadIsBroadcast) {
  Maker m;
  Cached c = cached(m, 4, 1);
  ValueId scores = keys_by_scores(m, c.query, c.key);
  ValueId context = m.op("MatMul", {m.chances(scores, m.visible(m.size(c.key, 2))), c.value});
  EXPECT_EQ(expect_raised_equals_plain(m.finish_heads(context, 4, 4)).layers.at(0).kv_heads, 1);
}

TEST(Dialects, HeadsSharedInAnotherOrderAreRefused) {
  Maker m;
  Cached c = cached(m, 4, 2);
  // Query head h reads key head h % 2: no grouping of neighbours.
  ValueId s = m.unsqueeze(m.size(m.ids, 1), 0);
  ValueId query = m.op("Reshape", {c.query, m.concat({m.ints({1, 2, 2}), s, m.ints({4})}, 0)});
  ValueId scores = scaled(m, m.op("MatMul", {query, m.unsqueeze(m.transpose(c.key, {0, 1, 3, 2}), 1)}));
  ValueId context = m.op("MatMul", {m.chances(scores, m.visible(m.size(c.key, 2))), m.unsqueeze(c.value, 1)});
  Graph graph = m.finish_heads(m.op("Reshape", {context, m.concat({m.ints({1, 4}), s, m.ints({4})}, 0)}), 4, 4);
  Decoder found = recognise(graph, World::get().options());
  EXPECT_FALSE(found.recognised);
  EXPECT_NE(found.why_not.find("order"), std::string::npos) << found.why_not;
}

/// Bloom's way: heads as part of the batch, keys stored transposed, a slope a head added to the scores.
TEST(Dialects, SlopesAndACacheOfTransposedKeys) {
  Maker m;
  ValueId x = m.embedded();
  ValueId past_key = m.past("key", {m.dim("b x heads"), 4, m.dim("p")});
  ValueId past_value = m.past("value", {m.dim("b x heads"), m.dim("p"), 4});
  ValueId rows = m.unsqueeze(m.op("Mul", {m.size(m.ids, 0), m.integer(2)}), 0), s = m.unsqueeze(m.size(m.ids, 1), 0);
  auto flat = [&](ValueId id, const std::vector<ValueId>& sizes) {
    return m.op("Reshape", {id, m.concat(sizes, 0)});
  };
  ValueId query = flat(m.heads(x, 2, 4), {rows, s, m.ints({4})});
  ValueId key = flat(m.transpose(m.heads(x, 2, 4), {0, 1, 3, 2}), {rows, m.ints({4}), s});
  ValueId value = flat(m.heads(x, 2, 4), {rows, s, m.ints({4})});
  key = m.concat({past_key, key}, 2);
  value = m.concat({past_value, value}, 1);
  m.present("key", key);
  m.present("value", value);
  ValueId total = m.size(key, 2);
  ValueId places = m.op("Cast", {m.op("Range", {m.integer(0), total, m.integer(1)})}, Maker::with("to", int64_t{1}));
  float slopes[] = {0.25f, 0.0625f};
  ValueId bias = m.op("Mul", {m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{2, 1, 1}, slopes)), places});
  ValueId scores = m.op("Add", {scaled(m, m.op("MatMul", {query, key})), bias});
  scores = flat(scores, {m.unsqueeze(m.size(m.ids, 0), 0), m.ints({2}), s, m.unsqueeze(total, 0)});
  ValueId chances = flat(m.chances(scores, m.visible(total)), {rows, s, m.unsqueeze(total, 0)});
  ValueId context =
      flat(m.op("MatMul", {chances, value}), {m.unsqueeze(m.size(m.ids, 0), 0), m.ints({2}), s, m.ints({4})});
  Decoder found = expect_raised_equals_plain(m.finish_heads(context, 2, 4));
  EXPECT_EQ(found.features().count("ALiBi"), 1u);
}

TEST(Dialects, KeysAndValuesInOneInput) {
  Maker m(DType::f32, DType::i32);
  ValueId x = m.embedded();
  ValueId past = m.input("past_0", DType::f32, {2, m.dim("batch"), 2, m.dim("p"), 4});
  auto part = [&](int64_t k) { return m.op("Gather", {past, m.integer(k)}, Maker::with("axis", int64_t{0})); };
  ValueId key = m.concat({part(0), m.heads(x, 2, 4)}, 2), value = m.concat({part(1), m.heads(x, 2, 4)}, 2);
  ValueId present = m.concat({m.unsqueeze(key, 0), m.unsqueeze(value, 0)}, 0);
  m.graph.value(present).name = "present_0";
  m.presents = {present};
  ValueId chances = m.chances(keys_by_scores(m, m.heads(x, 2, 4), key), m.visible(m.size(key, 2)));
  expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, value}), 2, 4));
}

TEST(Dialects, WithoutACacheRaiseAddsOne) {
  for (int64_t window : {int64_t{0}, int64_t{6}}) {
    Maker m;
    ValueId x = m.embedded(), query = m.heads(x, 2, 4), key = m.heads(x, 2, 4), value = m.heads(x, 2, 4);
    ValueId chances = m.chances(keys_by_scores(m, query, key), m.visible(m.size(key, 2), window));
    Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, value}), 2, 4));
    ASSERT_EQ(found.layers.size(), 1u);
    EXPECT_EQ(found.layers[0].window, window);
  }
}

TEST(Dialects, RowsWithoutKeysDoNotOccur) {
  Maker m;
  Cached c = cached(m, 2, 2);
  ValueId mask = m.input("attention_mask", DType::i64, {m.dim("b"), m.dim("p + s")});
  ValueId seen = m.op("And", {m.visible(m.size(c.key, 2)), m.op("Cast", {m.op("Unsqueeze", {mask, m.ints({1, 2})})},
                                                                Maker::with("to", int64_t{9}))});
  ValueId count = m.op("ReduceSum", {m.op("Cast", {seen}, Maker::with("to", int64_t{1})), m.ints({-1})});
  ValueId none = m.op("Less", {count, m.real(0.5)});
  ValueId context = m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), seen), c.value});
  context = m.op("Where", {none, m.real(0), context});
  expect_raised_equals_plain(m.finish_heads(context, 2, 4));
}

/// Files that were merged of a graph for prompts and one that continues declare the mask as the former has it.
TEST(Dialects, AMaskThatIsDeclaredAsLongAsTheNewTokensCoversThePast) {
  Maker m;
  Cached c = cached(m, 2, 2);
  ValueId mask = m.input("attention_mask", DType::i64, {m.dim("b"), m.dim("s")});
  ValueId shown = m.op("Cast", {m.op("Unsqueeze", {mask, m.ints({1, 2})})}, Maker::with("to", int64_t{9}));
  ValueId seen = m.op("And", {m.visible(m.size(c.key, 2)), shown});
  ValueId context = m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), seen), c.value});
  expect_raised_equals_plain(m.finish_heads(context, 2, 4));
}

/// What is chosen by a length that short probes do not reach is no settled choice.
TEST(Dialects, AChoiceByLengthStays) {
  for (int64_t limit : {int64_t{5000}, int64_t{1} << 40}) {
    Maker m;
    Cached c = cached(m, 2, 2);
    ValueId total = m.size(c.key, 2);
    ValueId context = m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), m.visible(total)), c.value});
    ValueId is_long = m.op("Greater", {total, m.integer(limit)});
    context = m.op("Where", {is_long, m.op("Neg", {context}), context});
    Decoder found = recognise(m.finish_heads(context, 2, 4), World::get().options());
    EXPECT_EQ(found.recognised, limit > 5000) << found.why_not;
  }
}

TEST(Dialects, HalfPrecisionIsComputedInF32) {
  Maker m(DType::f16);
  Cached c = cached(m, 2, 2);
  ValueId context =
      m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), m.visible(m.size(c.key, 2))), c.value});
  Graph graph = m.finish_heads(context, 2, 4);
  Decoder found = expect_raised_equals_plain(graph, 5e-3);
  EXPECT_EQ(found.features().count("Linear f16"), 1u) << "weights stay stored as they are";
}

/// GroupQueryAttention of packed queries, keys and values, with tables to rotate by, and a past whose head size only
/// the op tells.
Graph grouped(int64_t window) {
  Maker m;
  ValueId mask = m.input("attention_mask", DType::i64, {m.dim("b"), m.dim("total")});
  ValueId past_key = m.past("key", {m.dim("b"), 1, m.dim("p"), m.dim("kv_cache_dim")});
  ValueId past_value = m.past("value", {m.dim("b"), 1, m.dim("p"), m.dim("kv_cache_dim")});
  std::vector<float> cosine, sine;
  for (int position = 0; position < 64; ++position)
    for (double frequency : {1.0, 0.1}) {
      cosine.push_back(static_cast<float>(std::cos(position * frequency)));
      sine.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  ValueId cos = m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{64, 2}, cosine));
  ValueId sin = m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{64, 2}, sine));
  ValueId lengths =
      m.op("Sub", {m.op("ReduceSum", {mask, m.ints({1})}, Maker::with("keepdims", int64_t{0})), m.integer(1)});
  ValueId total = m.size(mask, 1);
  auto to_i32 = [&](ValueId id) { return m.op("Cast", {id}, Maker::with("to", int64_t{6})); };
  Attributes attributes;
  attributes.set("num_heads", int64_t{2});
  attributes.set("kv_num_heads", int64_t{1});
  attributes.set("do_rotary", int64_t{1});
  if (window) attributes.set("local_window_size", window);
  auto out = m.ops("com.microsoft.GroupQueryAttention",
                   {m.linear(m.embedded(), 8, 16), no_value, no_value, past_key, past_value, to_i32(lengths),
                    to_i32(total), cos, sin},
                   3, attributes);
  m.present("key", out[1]);
  m.present("value", out[2]);
  return m.finish(out[0], 8);
}

TEST(Dialects, GroupQueryAttention) {
  for (int64_t window : {int64_t{0}, int64_t{7}}) {
    Decoder found = expect_raised_equals_plain(grouped(window));
    ASSERT_EQ(found.layers.size(), 1u);
    EXPECT_EQ(found.layers[0].window, window);
    EXPECT_EQ(found.layers[0].key_size, 4);
    EXPECT_EQ(found.context, 64) << "as far as the tables reach";
  }
}

TEST(Dialects, SeveralOpsInOne) {
  Maker m;
  Cached c = cached(m, 2, 2);
  Attributes turned = Maker::with("transB", int64_t{1});
  turned.set("alpha", 0.5);
  ValueId scores = m.op("com.microsoft.FusedMatMul", {c.query, c.key}, turned);
  ValueId context = m.op("MatMul", {m.chances(scores, m.visible(m.size(c.key, 2))), c.value});
  ValueId flat = m.reshape(m.transpose(context, {0, 2, 1, 3}), {0, 0, 8}), skip = m.linear(flat, 8, 8);
  auto normed = m.ops("com.microsoft.SkipSimplifiedLayerNormalization", {flat, skip, m.weight({8})}, 4);
  ValueId hidden = m.op("com.microsoft.FastGelu", {m.linear(normed[0], 8, 8), m.weight({8})});
  hidden = m.op("com.microsoft.SkipLayerNormalization", {hidden, normed[3], m.weight({8}), m.weight({8})});
  Decoder found = expect_raised_equals_plain(m.finish(hidden, 8));
  EXPECT_EQ(found.features()["RMSNorm"], 1);
  EXPECT_EQ(found.features()["LayerNorm"], 1);
  EXPECT_EQ(found.features()["activation gelu_tanh"], 1);
}

/// Each token chooses two of three experts: tokens and choices are one axis.
TEST(Dialects, TokensTimesExperts) {
  Maker m;
  Cached c = cached(m, 2, 2);
  ValueId context =
      m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), m.visible(m.size(c.key, 2))), c.value});
  ValueId rows = m.reshape(m.reshape(m.transpose(context, {0, 2, 1, 3}), {0, 0, 8}), {-1, 8});
  ValueId router = m.op("Softmax", {m.linear(rows, 8, 3)}, Maker::with("axis", int64_t{-1}));
  auto best = m.ops("TopK", {router, m.ints({2})}, 2);
  ValueId twice = m.reshape(m.op("Expand", {m.unsqueeze(rows, 1), m.ints({1, 2, 1})}), {-1, 8});
  ValueId chosen = m.op("Gather", {m.weight({3, 8, 8}), m.reshape(best[1], {-1})}, Maker::with("axis", int64_t{0}));
  ValueId made = m.reshape(m.op("MatMul", {m.unsqueeze(twice, 1), chosen}), {-1, 2, 8});
  ValueId sum = m.op("ReduceSum", {m.op("Mul", {made, m.unsqueeze(best[0], 2)}), m.ints({1})},
                     Maker::with("keepdims", int64_t{0}));
  ValueId back = m.op("Reshape", {sum, m.concat({m.op("Shape", {m.ids}), m.ints({8})}, 0)});
  expect_raised_equals_plain(m.finish(back, 8));
}

TEST(Dialects, TokensBehindAnotherAxisMix) {
  // [2, t] as one axis, cut into [t, 2]: a token's row would hold another's numbers.
  Maker m;
  Cached c = cached(m, 2, 2);
  ValueId context =
      m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), m.visible(m.size(c.key, 2))), c.value});
  ValueId mixed = m.op("Reshape", {context, m.concat({m.op("Shape", {m.ids}), m.ints({8})}, 0)});
  Decoder found = recognise(m.finish(mixed, 8), World::get().options());
  EXPECT_FALSE(found.recognised);
  EXPECT_NE(found.why_not.find("Reshape"), std::string::npos) << found.why_not;
}

TEST(Dialects, TablesCutToTheLengthSoFar) {
  // Learned positions, of which the file keeps [0, total) before it picks rows; no cache, so total is s.
  Maker m;
  ValueId positions = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")});
  ValueId table = m.op("Slice", {m.weight({64, 8}), m.ints({0}), m.unsqueeze(m.size(m.ids, 1), 0), m.ints({0})});
  ValueId x = m.op("Add", {m.embedded(), m.op("Gather", {table, positions}, Maker::with("axis", int64_t{0}))});
  ValueId query = m.heads(x, 2, 4), key = m.heads(x, 2, 4), value = m.heads(x, 2, 4);
  ValueId chances = m.chances(keys_by_scores(m, query, key), m.visible(m.size(key, 2)));
  Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, value}), 2, 4));
  EXPECT_EQ(found.context, 64);
}

TEST(Dialects, AnglesOfOneRowAToken) {
  // Tables made for these tokens, of which a rotation picks row 0, 1, ..
  Maker m;
  ValueId positions = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")});
  ValueId x = m.embedded();
  Dims dims{m.dim("b"), 2, m.dim("p"), 4};
  ValueId past_key = m.past("key", dims), past_value = m.past("value", dims);
  ValueId flat = m.op("Cast", {m.reshape(positions, {-1, 1})}, Maker::with("to", int64_t{1}));
  float frequencies[] = {1, 0.1f};
  ValueId angles = m.op("Mul", {flat, m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{1, 2}, frequencies))});
  ValueId cosine = m.op("Cos", {angles}), sine = m.op("Sin", {angles});
  ValueId count = m.op("Mul", {m.size(m.ids, 0), m.size(m.ids, 1)});
  ValueId places = m.op("Reshape", {m.op("Range", {m.integer(0), count, m.integer(1)}), m.op("Shape", {m.ids})});
  auto rotated = [&] {
    ValueId turned = m.op("com.microsoft.RotaryEmbedding", {m.linear(x, 8, 8), places, cosine, sine},
                          Maker::with("num_heads", int64_t{2}));
    return m.transpose(m.reshape(turned, {0, 0, 2, 4}), {0, 2, 1, 3});
  };
  ValueId query = rotated(), key = m.concat({past_key, rotated()}, 2),
          value = m.concat({past_value, m.heads(x, 2, 4)}, 2);
  m.present("key", key);
  m.present("value", value);
  ValueId chances = m.chances(keys_by_scores(m, query, key), m.visible(m.size(key, 2)));
  expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, value}), 2, 4));
}

TEST(Dialects, NumbersThatPassThroughAreHandedOn) {
  Maker m;
  Cached c = cached(m, 2, 2);
  ValueId kept = m.input("past_key_values.0.window", DType::i64, {});
  ValueId context =
      m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), m.visible(m.size(c.key, 2))), c.value});
  m.present("window", m.op("Identity", {kept}));
  expect_raised_equals_plain(m.finish_heads(context, 2, 4));
}

/// Buffers of fixed length, into which new tokens are written from the place in a counter on; the mask input is
/// what each token sees of the whole buffer.
Graph static_cache(const std::string& writer) {
  Maker m;
  ValueId x = m.embedded();
  Dims dims{m.dim("b"), 2, m.dim("capacity"), 4};
  ValueId mask = m.input("attention_mask", DType::boolean, {m.dim("b"), 1, m.dim("s"), m.dim("capacity")});
  ValueId past = m.input("past_key_values.0.length", DType::i64, {});
  ValueId s = m.size(m.ids, 1);
  ValueId places = m.op("Range", {past, m.op("Add", {past, s}), m.integer(1)});
  auto written = [&](const std::string& part) {
    ValueId buffer = m.past(part, dims), fresh = m.heads(x, 2, 4), out;
    if (writer == "TensorScatter") {
      ValueId start = m.unsqueeze(past, 0);
      out = m.op("TensorScatter", {buffer, fresh, start}, Maker::with("axis", int64_t{-2}));
    } else {
      ValueId turned = m.transpose(buffer, {2, 0, 1, 3});
      out = m.op("ScatterND", {turned, m.unsqueeze(places, 1), m.transpose(fresh, {2, 0, 1, 3})});
      out = m.transpose(out, {1, 2, 0, 3});
    }
    m.present(part, out);
    return out;
  };
  ValueId key = written("key"), value = written("value");
  ValueId next = m.op("Add", {past, s});
  m.present("length", next);
  ValueId context = m.op("Attention", {m.heads(x, 4, 4), key, value, mask}, Maker::with("scale", 0.5));
  return m.finish_heads(context, 4, 4);
}

TEST(Dialects, BuffersOfFixedLength) {
  for (const char* writer : {"TensorScatter", "ScatterND"}) {
    SCOPED_TRACE(writer);
    Decoder found = expect_raised_equals_plain(static_cache(writer));
    ASSERT_EQ(found.layers.size(), 1u);
    EXPECT_EQ(found.layers[0].kv_heads, 2);
  }
}

/// Buffers of a length that is in the file, with the number of keys that they hold: the cache outside Attention,
/// as ONNX describes it. A ring begins again when it is full.
Graph own_buffers(int64_t length, bool ring) {
  Maker m;
  ValueId x = m.embedded(), past = m.input("past_key_values.0.length", DType::i64, {});
  ValueId s = m.size(m.ids, 1), next = m.op("Add", {past, s});
  ValueId start = ring ? m.op("Mod", {past, m.integer(length)}) : past;
  auto written = [&](const std::string& part) {
    ValueId buffer = m.past(part, {m.dim("b"), 2, length, 4});
    ValueId out = m.op("TensorScatter", {buffer, m.heads(x, 2, 4), m.unsqueeze(start, 0)},
                       Maker::with("mode", std::string(ring ? "circular" : "linear")));
    m.present(part, out);
    return out;
  };
  ValueId key = written("key"), value = written("value");
  m.present("length", next);
  ValueId held = m.op("Min", {next, m.integer(length)});
  Attributes attributes = Maker::with("scale", 0.5);
  attributes.set("is_causal", int64_t{1});
  ValueId context = m.op(
      "Attention", {m.heads(x, 4, 4), key, value, no_value, no_value, no_value, m.unsqueeze(held, 0)}, attributes);
  return m.finish_heads(context, 4, 4);
}

TEST(Dialects, BuffersOfTheirOwnLength) {
  Decoder found = expect_raised_equals_plain(own_buffers(40, false));
  ASSERT_EQ(found.layers.size(), 1u);
  EXPECT_EQ(found.layers[0].window, 0);
  EXPECT_EQ(found.context, 40) << "a buffer that is full takes no more";
}

TEST(Dialects, ARingIsAWindow) {
  Graph graph = own_buffers(6, true);
  const World& world = World::get();
  auto plain = make_plain_engine(graph, world.options(), small_engine(), nullptr);
  auto raised = make_engine(graph, world.options(DType::f32), small_engine());
  ASSERT_TRUE(raised->decoder().recognised) << recognise(graph, world.options()).why_not;
  EXPECT_EQ(raised->decoder().layers[0].window, 6);
  std::vector<int32_t> ids;
  for (int i = 0; i < 19; ++i) ids.push_back((i * 7 + 3) % Maker::vocabulary);
  // One by one: several tokens at once would take keys away from the first among them in the file's own ring.
  std::vector<float> expected = logits_of(*plain, ids, 1);
  for (size_t chunk : {size_t{1}, size_t{4}, size_t{19}}) {
    std::vector<float> got = logits_of(*raised, ids, chunk);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i << " in steps of " << chunk;
  }
}

/// One If over a bool input: a branch that joins the cache, and one for a sequence's first tokens.
TEST(Dialects, MergedDecoder) {
  auto branch = [](bool with_past) {
    Maker m;
    Cached c{};
    ValueId total;
    if (with_past) {
      c = cached(m, 2, 2);
      total = m.size(c.key, 2);
    } else {
      ValueId x = m.embedded();
      for (const char* part : {"key", "value"}) m.past(part, {m.dim("b"), 2, m.dim("p"), 4});
      c = {m.heads(x, 2, 4), m.heads(x, 2, 4), m.heads(x, 2, 4)};
      m.present("key", c.key);
      m.present("value", c.value);
      total = m.size(c.key, 2);
    }
    ValueId context = m.op("MatMul", {m.chances(keys_by_scores(m, c.query, c.key), m.visible(total)), c.value});
    return m.finish_heads(context, 2, 4);
  };
  // Both branches draw their weights in one order, so they are one model.
  Graph graph, with = branch(true), without = branch(false);
  ValueId use = graph.add_value("use_cache_branch", {DType::boolean, Dims{1}});
  std::vector<ValueId> operands{use};
  for (ValueId id : with.inputs) {
    Type type = with.value(id).type;
    for (Dim& dim : *type.dims)
      if (auto symbol = dim.single_symbol()) dim = graph.symbol(with.symbols[*symbol].name);
    operands.push_back(graph.add_value(with.value(id).name, type));
    graph.inputs.push_back(operands.back());
  }
  graph.inputs.push_back(use);
  Node& node = graph.add_node("If", operands, 3);
  node.name = "merged";
  const char* names[] = {"logits", "present.0.key", "present.0.value"};
  for (size_t k = 0; k < 3; ++k) graph.value(node.outputs[k]).name = names[k];
  graph.outputs = node.outputs;
  node.bodies = {{"then_branch", std::make_shared<Graph>(std::move(with))},
                 {"else_branch", std::make_shared<Graph>(std::move(without))}};
  expect_raised_equals_plain(graph);
}

}  // namespace
}  // namespace plait::test

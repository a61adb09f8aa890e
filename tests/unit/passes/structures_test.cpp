// Structures that some families have: sinks, rotations in other layouts, experts unrolled. However they are written, the
// raised program gives the logits of the graph as it is written.
#include <gtest/gtest.h>

#include "tests/unit/passes/decoder_maker.h"

namespace plait::test {
namespace {

using Maker = DecoderMaker;

ValueId scores(Maker& m, ValueId query, ValueId key) {
  return m.op("Mul", {m.op("MatMul", {query, m.transpose(key, {0, 1, 3, 2})}), m.real(0.5)});
}

ValueId vector(Maker& m, const std::vector<float>& numbers) {
  Shape shape{static_cast<int64_t>(numbers.size())};
  return m.graph.add_constant(Tensor::of<float>(DType::f32, shape, numbers));
}

/// One more column, that takes a share of each row and has no value.
TEST(Structures, SinksAsAColumnOfScores) {
  Maker m;
  ValueId x = m.embedded();
  Maker::KeyValue c = m.with_past(m.heads(x, 2, 4), m.heads(x, 2, 4));
  ValueId masked = m.op("Where", {m.visible(m.size(c.key, 2)), scores(m, m.heads(x, 2, 4), c.key), m.real(-10000)});
  ValueId s = m.unsqueeze(m.size(m.ids, 1), 0), b = m.unsqueeze(m.size(m.ids, 0), 0);
  ValueId column = m.op(
      "Expand", {m.reshape(vector(m, {0.5f, -1.0f}), {1, 2, 1, 1}), m.concat({b, m.ints({2}), s, m.ints({1})}, 0)});
  ValueId all = m.concat({masked, column}, -1);
  all = m.op("Sub", {all, m.op("ReduceMax", {all, m.ints({-1})}, Maker::with("keepdims", int64_t{1}))});
  ValueId chances = m.op("Softmax", {all}, Maker::with("axis", int64_t{-1}));
  chances = m.op("Slice", {chances, m.ints({0}), m.ints({-1}), m.ints({3}), m.ints({1})});
  Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, c.value}), 2, 4));
  EXPECT_EQ(found.features().count("attention sink"), 1u);
}

/// Neighbouring elements [b, s, heads, 4] turned by the tokens' positions, tokens before heads.
ValueId rotated(Maker& m, ValueId x, ValueId total) {
  ValueId s = m.size(m.ids, 1), one = m.integer(1);
  ValueId places = m.op("Range", {m.op("Sub", {total, s}), total, one});
  places = m.op("Cast", {places}, Maker::with("to", int64_t{1}));
  ValueId angles = m.op("Mul", {m.unsqueeze(places, 1), vector(m, {1.0f, 0.1f})});
  auto table = [&](const char* function) {  // [s, 1, 4], each angle twice in a row
    ValueId wide = m.op("Expand", {m.unsqueeze(m.op(function, {angles}), 2), m.ints({1, 1, 2})});
    return m.reshape(wide, {-1, 1, 4});
  };
  auto every_other = [&](int64_t first) {
    return m.unsqueeze(m.op("Slice", {x, m.ints({first}), m.ints({INT64_MAX}), m.ints({3}), m.ints({2})}), -1);
  };
  ValueId crossed = m.concat({m.op("Neg", {every_other(1)}), every_other(0)}, -1);
  crossed = m.reshape(crossed, {0, 0, 2, 4});
  return m.op("Add", {m.op("Mul", {x, table("Cos")}), m.op("Mul", {crossed, table("Sin")})});
}

TEST(Structures, NeighboursTurnedBeforeHeadsComeFirst) {
  Maker m;
  ValueId x = m.embedded();
  auto apart = [&] { return m.reshape(m.linear(x, Maker::hidden, 8), {0, 0, 2, 4}); };
  ValueId past = m.past("key", {m.dim("b"), 2, m.dim("p"), 4});
  ValueId total = m.op("Add", {m.size(past, 2), m.size(m.ids, 1)});
  ValueId query = m.transpose(rotated(m, apart(), total), {0, 2, 1, 3});
  ValueId key = m.concat({past, m.transpose(rotated(m, apart(), total), {0, 2, 1, 3})}, 2);
  m.present("key", key);
  ValueId value = m.concat({m.past("value", {m.dim("b"), 2, m.dim("p"), 4}), m.heads(x, 2, 4)}, 2);
  m.present("value", value);
  ValueId chances = m.chances(scores(m, query, key), m.visible(total));
  Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, value}), 2, 4));
  EXPECT_EQ(found.features()["RoPE"], 2);
}

/// Three experts, two of them for each token; an expert sees the tokens that chose it, in a tensor of its own. `shift`
/// is added to the numbers that rows are put back at.
ValueId experts(Maker& m, ValueId x, bool by_tuple, int64_t shift) {
  x = m.reshape(x, {-1, Maker::hidden});
  ValueId chances = m.op("Softmax", {m.linear(x, Maker::hidden, 3)}, Maker::with("axis", int64_t{-1}));
  auto top = m.ops("TopK", {chances, m.ints({2})}, 2);
  ValueId marks = m.op("OneHot", {top[1], m.integer(3), m.ints({0, 1})});
  marks = m.transpose(marks, {2, 1, 0});
  ValueId out = m.op("Mul", {x, m.real(0)});
  for (int64_t expert = 0; expert < 3; ++expert) {
    ValueId mine = m.op("Gather", {marks, m.integer(expert)}, Maker::with("axis", int64_t{0}));
    mine = m.op("Cast", {mine}, Maker::with("to", int64_t{9}));
    ValueId found = m.transpose(m.op("NonZero", {mine}), {1, 0});
    auto parts = m.ops("Split", {found, m.ints({1, 1})}, 2, Maker::with("axis", int64_t{1}));
    ValueId choice = m.op("Squeeze", {parts[0], m.ints({1})}), place = m.op("Squeeze", {parts[1], m.ints({1})});
    ValueId rows = m.op("Gather", {m.unsqueeze(x, 0), place}, Maker::with("axis", int64_t{1}));
    rows = m.linear(m.op("Tanh", {m.reshape(rows, {-1, Maker::hidden})}), Maker::hidden, Maker::hidden);
    ValueId share;
    if (by_tuple) {
      share = m.op("GatherND", {top[0], m.concat({m.unsqueeze(place, 1), m.unsqueeze(choice, 1)}, -1)});
      share = m.unsqueeze(share, 1);
    } else {
      ValueId at = m.op("Add", {choice, m.op("Mul", {place, m.integer(2)})});
      share = m.op("Gather", {m.reshape(top[0], {-1, 1}), at}, Maker::with("axis", int64_t{0}));
    }
    rows = m.op("Mul", {rows, share});
    ValueId back = shift ? m.op("Mul", {place, m.integer(shift)}) : place;
    if (by_tuple) {
      out = m.op("ScatterND", {out, m.unsqueeze(back, 1), rows}, Maker::with("reduction", std::string("add")));
    } else {
      ValueId wide = m.op("Expand", {m.unsqueeze(back, 1), m.op("Shape", {rows})});
      Attributes add = Maker::with("axis", int64_t{0});
      add.set("reduction", std::string("add"));
      out = m.op("ScatterElements", {out, wide, rows}, std::move(add));
    }
  }
  return out;
}

Graph with_experts(bool by_tuple, int64_t shift) {
  Maker m;
  ValueId x = m.embedded();
  ValueId s = m.unsqueeze(m.size(m.ids, 1), 0), b = m.unsqueeze(m.size(m.ids, 0), 0);
  ValueId mixed = m.op("Reshape", {experts(m, x, by_tuple, shift), m.concat({b, s, m.ints({Maker::hidden})}, 0)});
  x = m.op("Add", {x, mixed});
  Maker::KeyValue c = m.with_past(m.heads(x, 2, 4), m.heads(x, 2, 4));
  ValueId chances = m.chances(scores(m, m.heads(x, 2, 4), c.key), m.visible(m.size(c.key, 2)));
  return m.finish_heads(m.op("MatMul", {chances, c.value}), 2, 4);
}

TEST(Structures, ExpertsSeeTheTokensThatChoseThem) {
  for (bool by_tuple : {false, true}) {
    SCOPED_TRACE(by_tuple ? "tuples" : "numbers");
    expect_raised_equals_plain(with_experts(by_tuple, 0));
  }
}

/// Rows that come back at other tokens' places mix tokens.
TEST(Structures, RowsThatStrayAreRefused) {
  for (bool by_tuple : {false, true}) {
    Decoder found = recognise(with_experts(by_tuple, -1), World::get().options());
    EXPECT_FALSE(found.recognised);
    EXPECT_NE(found.why_not.find("routed"), std::string::npos) << found.why_not;
  }
}

/// A second layer that attends to the first one's keys and values, and has a past that nothing reads.
Graph sharing_layers() {
  Maker m;
  ValueId x = m.embedded();
  Maker::KeyValue c = m.with_past(m.heads(x, 2, 4), m.heads(x, 2, 4));
  ValueId idle = m.input("past_key_values.1.key", DType::f32, {m.dim("b"), 2, m.dim("p"), 4});
  ValueId handed_on = m.op("Identity", {idle});
  m.graph.value(handed_on).name = "present.1.key";
  m.presents.push_back(handed_on);
  auto layer = [&](ValueId from) {
    ValueId chances = m.chances(scores(m, m.heads(from, 2, 4), c.key), m.visible(m.size(c.key, 2)));
    return m.reshape(m.transpose(m.op("MatMul", {chances, c.value}), {0, 2, 1, 3}), {0, 0, 8});
  };
  ValueId first = m.op("Tanh", {layer(x)});
  return m.finish(layer(first), 8);
}

TEST(Structures, LayersThatShareKeysShareTheirPages) {
  Decoder found = expect_raised_equals_plain(sharing_layers());
  EXPECT_EQ(found.layers.size(), 2u);
  ASSERT_EQ(found.pools.size(), 1u);
  EXPECT_EQ(found.pools[0].layers, 1);
}

/// Halves of [b, heads, s, 4] turned by tables that are computed for every place so far, of which `places` are picked.
ValueId rotated_by_tables(Maker& m, ValueId x, ValueId total, ValueId places) {
  auto real = [&](ValueId id) { return m.op("Cast", {id}, Maker::with("to", int64_t{1})); };
  ValueId numbers = m.op("Range", {m.real(0), real(total), m.real(1)});
  ValueId angles = m.op("Mul", {m.unsqueeze(numbers, 1), vector(m, {1.0f, 0.1f})});
  angles = m.concat({angles, angles}, -1);
  auto table = [&](const char* function) {
    ValueId rows = m.op("Gather", {m.op(function, {angles}), places}, Maker::with("axis", int64_t{0}));
    return m.unsqueeze(rows, 1);
  };
  auto half = [&](int64_t begin, int64_t end) {
    return m.op("Slice", {x, m.ints({begin}), m.ints({end}), m.ints({3}), m.ints({1})});
  };
  ValueId crossed = m.concat({m.op("Neg", {half(2, 4)}), half(0, 2)}, -1);
  return m.op("Add", {m.op("Mul", {x, table("Cos")}), m.op("Mul", {crossed, table("Sin")})});
}

TEST(Structures, TablesComputedForAllPlaces) {
  Maker m;
  ValueId x = m.embedded();
  ValueId places = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")});
  ValueId past = m.past("key", {m.dim("b"), 2, m.dim("p"), 4});
  ValueId total = m.op("Add", {m.size(past, 2), m.size(m.ids, 1)});
  ValueId query = rotated_by_tables(m, m.heads(x, 2, 4), total, places);
  ValueId key = m.concat({past, rotated_by_tables(m, m.heads(x, 2, 4), total, places)}, 2);
  m.present("key", key);
  ValueId value = m.concat({m.past("value", {m.dim("b"), 2, m.dim("p"), 4}), m.heads(x, 2, 4)}, 2);
  m.present("value", value);
  ValueId chances = m.chances(scores(m, query, key), m.visible(total));
  Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, value}), 2, 4));
  EXPECT_EQ(found.features().at("RoPE"), 2);
}

/// A latent of 6 numbers a token and a key that all heads share are cached; heads' keys and values are made of them anew
/// for all tokens. `shift`: something that is not of each token by itself.
Graph latent_attention(bool shift) {
  Maker m;
  ValueId x = m.embedded();
  auto kept = [&](const char* name, int64_t size) {
    ValueId past = m.past(name, {m.dim("b"), 1, m.dim("p"), size});
    ValueId all = m.concat({past, m.heads(x, 1, size)}, 2);
    m.present(name, all);
    return all;
  };
  ValueId latent = kept("key", 6), shared = kept("value", 2);
  ValueId total = m.size(latent, 2);
  ValueId rows = m.op("Squeeze", {latent, m.ints({1})});
  if (shift) rows = m.op("Sub", {rows, m.op("ReduceMean", {rows, m.ints({1})}, Maker::with("keepdims", int64_t{1}))});
  ValueId wide = m.transpose(m.reshape(m.linear(rows, 6, 2 * 8), {0, -1, 2, 8}), {0, 2, 1, 3});
  auto part = [&](int64_t begin, int64_t end) {
    return m.op("Slice", {wide, m.ints({begin}), m.ints({end}), m.ints({3}), m.ints({1})});
  };
  ValueId sizes = m.concat({m.unsqueeze(m.size(m.ids, 0), 0), m.ints({2}), m.unsqueeze(total, 0), m.ints({2})}, 0);
  ValueId key = m.concat({part(0, 4), m.op("Expand", {shared, sizes})}, -1), value = part(4, 8);
  ValueId chances = m.chances(scores(m, m.heads(x, 2, 6), key), m.visible(total));
  return m.finish_heads(m.op("MatMul", {chances, value}), 2, 4);
}

TEST(Structures, KeysAndValuesMadeOfACachedLatent) {
  Decoder found = expect_raised_equals_plain(latent_attention(false));
  ASSERT_EQ(found.layers.size(), 1u);
  EXPECT_EQ(found.layers[0].kv_heads, 2);
  EXPECT_EQ(found.layers[0].key_size, 6);
  EXPECT_EQ(found.layers[0].value_size, 4);
  EXPECT_FALSE(recognise(latent_attention(true), World::get().options()).recognised);
}

/// Three experts, two of them for each token, whose rows are sorted by their experts: each expert takes a run of the rows,
/// through a first weight for gate and up in one, and a second; each row may get its expert's biases.
ValueId sorted_experts(Maker& m, ValueId x, bool biases) {
  constexpr int64_t e = 3, f = 6;
  auto first = [] { return Maker::with("axis", int64_t{0}); };
  x = m.reshape(x, {-1, Maker::hidden});
  ValueId chances = m.op("Softmax", {m.linear(x, Maker::hidden, e)}, Maker::with("axis", int64_t{-1}));
  auto top = m.ops("TopK", {chances, m.ints({2})}, 2);
  ValueId numbers = m.reshape(top[1], {-1});
  Attributes ascending = first();
  ascending.set("largest", int64_t{0});
  auto sorted = m.ops("TopK", {numbers, m.op("Shape", {numbers})}, 2, std::move(ascending));
  ValueId rows = m.op("Gather", {x, m.op("Div", {sorted[1], m.integer(2)})}, first());
  std::vector<ValueId> runs;  // places of each expert's rows
  ValueId begin = m.integer(0);
  for (int64_t expert = 0; expert < e; ++expert) {
    ValueId upto = m.op("Cast", {m.op("LessOrEqual", {numbers, m.integer(expert)})}, Maker::with("to", int64_t{7}));
    ValueId end = m.op("ReduceSum", {upto, m.ints({0})}, Maker::with("keepdims", int64_t{0}));
    runs.push_back(m.op("Range", {begin, end, m.integer(1)}));
    begin = end;
  }
  auto grouped = [&](ValueId from, int64_t k, int64_t n) {
    std::vector<ValueId> parts;
    for (ValueId run : runs) parts.push_back(m.linear(m.op("Gather", {from, run}, first()), k, n));
    ValueId all = m.concat(parts, 0);
    return biases ? m.op("Add", {all, m.op("Gather", {m.weight({e, n}), sorted[0]}, first())}) : all;
  };
  ValueId wide = grouped(rows, Maker::hidden, 2 * f);
  auto sides = m.ops("Split", {wide, m.ints({f, f})}, 2, Maker::with("axis", int64_t{1}));
  ValueId gate = m.op("Mul", {sides[0], m.op("Sigmoid", {sides[0]})});
  ValueId out = grouped(m.op("Mul", {gate, sides[1]}), f, Maker::hidden);
  ValueId shares = m.op("Gather", {m.reshape(top[0], {-1}), sorted[1]}, first());
  out = m.op("Mul", {out, m.unsqueeze(shares, 1)});
  ValueId zeros = m.op("Sub", {numbers, numbers});
  ValueId places = m.op("Range", {m.integer(0), m.size(numbers, 0), m.integer(1)});
  ValueId back = m.op("ScatterElements", {zeros, sorted[1], places}, first());
  out = m.reshape(m.op("Gather", {out, back}, first()), {-1, 2, Maker::hidden});
  return m.op("ReduceSum", {out, m.ints({1})}, Maker::with("keepdims", int64_t{0}));
}

TEST(Structures, TokensSortedByTheirExperts) {
  for (bool biases : {false, true}) {
    SCOPED_TRACE(biases ? "biases" : "no biases");
    Maker m;
    ValueId x = m.embedded();
    ValueId s = m.unsqueeze(m.size(m.ids, 1), 0), b = m.unsqueeze(m.size(m.ids, 0), 0);
    ValueId mixed = m.op("Reshape", {sorted_experts(m, x, biases), m.concat({b, s, m.ints({Maker::hidden})}, 0)});
    Maker::KeyValue c = m.with_past(m.heads(mixed, 2, 4), m.heads(mixed, 2, 4));
    ValueId chances = m.chances(scores(m, m.heads(mixed, 2, 4), c.key), m.visible(m.size(c.key, 2)));
    Decoder found = expect_raised_equals_plain(m.finish_heads(m.op("MatMul", {chances, c.value}), 2, 4));
    EXPECT_EQ(found.features().count("Experts f32"), 1u);
  }
}

}  // namespace
}  // namespace plait::test

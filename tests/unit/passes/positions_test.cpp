// What recognition knows of positions: rotary embeddings of several positions a token (M-RoPE: Wang et al. 2024,
// Qwen2-VL), position_ids [3, b, s] for time, height and width, which are equal for text; tables of positions.
#include <gtest/gtest.h>

#include "core/passes/compile.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test {
namespace {

using Maker = DecoderMaker;
constexpr int64_t heads = 2, d = 8, rows = 3;

Tensor frequencies() {
  return Tensor::of<float>(DType::f32, Shape{1, 1, d / 2, 1}, std::vector<float>{1, 0.4f, 0.11f, 0.02f});
}

ValueId slice(Maker& m, ValueId x, int64_t begin, int64_t end) {
  return m.op("Slice", {x, m.ints({begin}), m.ints({end}), m.ints({-1})});
}

ValueId picked(Maker& m, ValueId from, ValueId rows) {
  return m.op("Gather", {from, rows}, Maker::with("axis", int64_t{0}));
}

/// x cos + (-second half, first half) sin.
ValueId rotated(Maker& m, ValueId x, ValueId cosine, ValueId sine) {
  ValueId halves = m.concat({m.op("Neg", {slice(m, x, d / 2, d)}), slice(m, x, 0, d / 2)}, -1);
  return m.op("Add", {m.op("Mul", {x, cosine}), m.op("Mul", {halves, sine})});
}

/// A decoder whose queries and keys are rotated by cosine and sine [b, 1, s, d].
Graph rotating(Maker& m, ValueId cosine, ValueId sine) {
  ValueId x = m.embedded();
  Dims dims{m.dim("b"), heads, m.dim("p"), d};
  ValueId past_key = m.past("key", dims), past_value = m.past("value", dims);
  ValueId query = rotated(m, m.heads(x, heads, d), cosine, sine);
  ValueId key = m.concat({past_key, rotated(m, m.heads(x, heads, d), cosine, sine)}, -2);
  ValueId value = m.concat({past_value, m.heads(x, heads, d)}, -2);
  m.present("key", key);
  m.present("value", value);
  ValueId scores = m.op("Mul", {m.op("MatMul", {query, m.transpose(key, {0, 1, 3, 2})}), m.real(0.35)});
  return m.finish_heads(m.op("MatMul", {m.chances(scores, m.visible(m.size(key, 2))), value}), heads, d);
}

ValueId positions_of(Maker& m, int64_t count) {
  return m.input("position_ids", DType::i64, {count, m.dim("b"), m.dim("s")});
}

/// transformers' way: angles of all rows [3, b, s, d], of which each row gives its columns.
Graph columns_of_rows(Maker& m, const std::vector<int64_t>& sections) {
  ValueId places = m.op("Cast", {m.unsqueeze(positions_of(m, rows), 2)}, Maker::with("to", int64_t{1}));
  ValueId sizes = m.concat({m.ints({rows}), m.unsqueeze(m.size(m.ids, 0), 0), m.ints({d / 2, 1})}, 0);
  ValueId wide = m.op("Expand", {m.graph.add_constant(frequencies()), sizes});
  ValueId angles = m.transpose(m.op("MatMul", {wide, places}), {0, 1, 3, 2});
  angles = m.concat({angles, angles}, -1);
  auto table = [&](const char* function) {
    std::vector<int64_t> lengths = sections;
    lengths.insert(lengths.end(), sections.begin(), sections.end());
    auto parts = m.ops("Split", {m.op(function, {angles}), m.ints(lengths)}, 6, Maker::with("axis", int64_t{-1}));
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i] = picked(m, parts[i], m.integer(static_cast<int64_t>(i) % rows));
    return m.unsqueeze(m.concat(parts, -1), 1);
  };
  ValueId cosine = table("Cos"), sine = table("Sin");
  return rotating(m, cosine, sine);
}

TEST(Positions, ThreeRowsGiveColumnsOfTheAngles) {
  Maker m;
  Decoder found = expect_raised_equals_plain(columns_of_rows(m, {2, 1, 1}));
  EXPECT_EQ(found.interface.position_rows, rows);
  EXPECT_EQ(found.features().count("RoPE"), 1u);
}

/// What com.microsoft.MRotaryEmbedding is read as: each row of positions picks rows of the tables.
TEST(Positions, ThreeRowsPickFromTables) {
  Maker m;
  ValueId positions = positions_of(m, rows);
  std::vector<float> cosines, sines;
  for (int64_t p = 0; p < 64; ++p)
    for (int64_t i = 0; i < d; ++i) {
      const double angle = static_cast<double>(p) * frequencies().as<float>()[i % (d / 2)];
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  auto table = [&](const std::vector<float>& numbers) {
    ValueId all = m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{64, d}, numbers)), out = no_value;
    for (int64_t row = 0; row < rows; ++row) {
      ValueId turn = picked(m, all, picked(m, positions, m.integer(row)));
      std::vector<uint8_t> columns;
      for (int64_t i = 0; i < d; ++i) columns.push_back(i % (d / 2) % rows == row);
      ValueId here = m.graph.add_constant(Tensor::of<uint8_t>(DType::boolean, Shape{d}, columns));
      out = row == 0 ? turn : m.op("Where", {here, turn, out});
    }
    return m.unsqueeze(out, 1);
  };
  ValueId cosine = table(cosines), sine = table(sines);
  EXPECT_EQ(expect_raised_equals_plain(rotating(m, cosine, sine)).features().count("RoPE"), 1u);
}

/// torch's exporter counts the rows of a mask that is cut from a table, and reshapes the context by that count:
/// max(0, min(64, past + s) - min(64, past)). It is s as long as positions are rows of a table of 64.
Graph counted_by_table(Maker& m, int64_t table_rows) {
  ValueId positions = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")});
  ValueId x = m.op("Add", {m.embedded(), picked(m, m.weight({64, 8}), positions)});
  Dims dims{m.dim("b"), heads, m.dim("p"), 4};
  ValueId past_key = m.past("key", dims), past_value = m.past("value", dims);
  ValueId key = m.concat({past_key, m.heads(x, heads, 4)}, -2), value = m.concat({past_value, m.heads(x, heads, 4)}, -2);
  m.present("key", key);
  m.present("value", value);
  ValueId past = m.size(past_key, 2), rows = m.integer(table_rows);
  ValueId before = m.op("Mul", {m.integer(-1), m.op("Min", {rows, past})});
  ValueId after = m.op("Min", {rows, m.op("Add", {past, m.size(m.ids, 1)})});
  ValueId count = m.op("Max", {m.integer(0), m.op("Add", {before, after})});
  ValueId scores = m.op("MatMul", {m.heads(x, heads, 4), m.transpose(key, {0, 1, 3, 2})});
  ValueId context = m.transpose(m.op("MatMul", {m.chances(scores, m.visible(m.size(key, 2))), value}), {0, 2, 1, 3});
  ValueId sizes = m.concat({m.unsqueeze(m.size(m.ids, 0), 0), m.unsqueeze(count, 0), m.ints({heads * 4})}, 0);
  return m.finish(m.op("Reshape", {context, sizes}), heads * 4);
}

TEST(Positions, TokensThatATableOfPositionsBounds) {
  Maker m;
  expect_raised_equals_plain(counted_by_table(m, 64));
}

TEST(Positions, ALimitBelowTheTableOfPositionsStays) {
  Maker m;
  EXPECT_FALSE(recognise(counted_by_table(m, 63), World::get().options()).recognised);
}

}  // namespace
}  // namespace plait::test

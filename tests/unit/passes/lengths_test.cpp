// Choices by the length of a sequence: each token of a ragged row is computed as the graph computes it for the token's own
// sequence, whatever else is in the row, and pages are shared by sequences that choose alike only.
#include <gtest/gtest.h>

#include "core/passes/compile.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test::lengths_forms {
namespace {

using Maker = DecoderMaker;

/// Sequences of more than `limit` tokens take the second table of angles; the first has no more rows than it needs.
constexpr int64_t limit = 20, longest = 64, heads = 2, size = 4;
/// Of the scores: large, so that the angles show.
constexpr double scale = 12;

ValueId table(Maker& m, bool sine, double factor, int64_t rows) {
  std::vector<float> numbers;
  for (int64_t position = 0; position < rows; ++position)
    for (double frequency : {1.0, 0.1}) {
      double angle = static_cast<double>(position) * frequency / factor;
      numbers.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
    }
  return m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{rows, 2}, numbers));
}

/// The two tables that an If over `is_long` takes one of, each branch with tables of its own.
std::vector<ValueId> chosen_tables(Maker& m, ValueId is_long) {
  auto branch = [](double factor, int64_t rows) {
    Maker inner;
    inner.graph.inputs.clear();
    inner.graph.outputs = {inner.op("Identity", {table(inner, false, factor, rows)}),
                           inner.op("Identity", {table(inner, true, factor, rows)})};
    return std::make_shared<Graph>(std::move(inner.graph));
  };
  Node& node = m.graph.add_node("If", {is_long}, 2);
  node.name = "tables";
  node.bodies = {{"then_branch", branch(3, longest)}, {"else_branch", branch(1, limit)}};
  return node.outputs;
}

/// What the spellings below have in common: a mask, and a past.
struct Parts {
  Maker m;
  ValueId mask = m.input("attention_mask", DType::i64, {m.dim("b"), m.dim("total")});
  ValueId total = m.size(mask, 1);
  ValueId past[2] = {m.past("key", {m.dim("b"), heads, m.dim("p"), size}),
                     m.past("value", {m.dim("b"), heads, m.dim("p"), size})};

  /// Attention of queries and keys that were turned already, [b, heads, s, d].
  Graph attended(ValueId x, ValueId query, ValueId key) {
    key = m.concat({past[0], key}, 2);
    ValueId value = m.concat({past[1], m.heads(x, heads, size)}, 2);
    m.present("key", key);
    m.present("value", value);
    ValueId scores = m.op("Mul", {m.op("MatMul", {query, m.transpose(key, {0, 1, 3, 2})}), m.real(scale)});
    return m.finish_heads(m.op("MatMul", {m.chances(scores, m.visible(total)), value}), heads, size);
  }
};

/// The builder's way: GroupQueryAttention rotates by tables that an If takes by the length of the mask.
Graph by_if_in_grouped() {
  Parts p;
  Maker& m = p.m;
  std::vector<ValueId> tables = chosen_tables(m, m.op("Greater", {p.total, m.integer(limit)}));
  auto to_i32 = [&](ValueId id) { return m.op("Cast", {id}, Maker::with("to", int64_t{6})); };
  ValueId lengths =
      m.op("Sub", {m.op("ReduceSum", {p.mask, m.ints({1})}, Maker::with("keepdims", int64_t{0})), m.integer(1)});
  Attributes attributes = Maker::with("num_heads", heads);
  attributes.set("kv_num_heads", heads);
  attributes.set("do_rotary", int64_t{1});
  attributes.set("scale", scale);
  auto out = m.ops("com.microsoft.GroupQueryAttention",
                   {m.linear(m.embedded(), Maker::hidden, 3 * heads * size), no_value, no_value, p.past[0], p.past[1],
                    to_i32(lengths), to_i32(p.total), tables[0], tables[1]},
                   3, attributes);
  m.present("key", out[1]);
  m.present("value", out[2]);
  return m.finish(out[0], heads * size);
}

/// The same tables with a rotation before attention; the condition the other way round, of one element.
Graph by_if_in_rotation() {
  Parts p;
  Maker& m = p.m;
  ValueId positions = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")}), x = m.embedded();
  ValueId is_long = m.op("Not", {m.op("LessOrEqual", {m.unsqueeze(p.total, 0), m.ints({limit})})});
  std::vector<ValueId> tables = chosen_tables(m, is_long);
  auto rotated = [&] {
    ValueId rotated = m.op("com.microsoft.RotaryEmbedding",
                          {m.linear(x, Maker::hidden, heads * size), positions, tables[0], tables[1]},
                          Maker::with("num_heads", heads));
    return m.transpose(m.reshape(rotated, {0, 0, heads, size}), {0, 2, 1, 3});
  };
  ValueId query = rotated();
  return p.attended(x, query, rotated());
}

/// The rest of it: angles computed of frequencies.
Graph rotated_by(Parts& p, ValueId positions, ValueId chosen) {
  Maker& m = p.m;
  ValueId x = m.embedded();
  ValueId real = m.op("Cast", {m.unsqueeze(positions, 2)}, Maker::with("to", int64_t{1}));
  ValueId half = m.op("Mul", {real, chosen}), angles = m.unsqueeze(m.concat({half, half}, -1), 1);
  ValueId cosine = m.op("Cos", {angles}), sine = m.op("Sin", {angles});
  auto rotated = [&] {
    ValueId id = m.heads(x, heads, size);
    ValueId left = m.op("Slice", {id, m.ints({0}), m.ints({2}), m.ints({3})});
    ValueId right = m.op("Slice", {id, m.ints({2}), m.ints({4}), m.ints({3})});
    ValueId rotated = m.concat({m.op("Neg", {right}), left}, -1);
    return m.op("Add", {m.op("Mul", {id, cosine}), m.op("Mul", {rotated, sine})});
  };
  ValueId query = rotated();
  return p.attended(x, query, rotated());
}

/// PyTorch's way: frequencies that a Where takes by the largest position.
Graph by_frequencies() {
  Parts p;
  Maker& m = p.m;
  ValueId positions = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")});
  ValueId last = m.op("ReduceMax", {positions}, Maker::with("keepdims", int64_t{0}));
  ValueId is_long = m.op("Greater", {m.op("Add", {last, m.integer(1)}), m.integer(limit)});
  auto frequencies = [&](float factor) {
    float numbers[] = {1 / factor, 0.1f / factor};
    return m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{2}, numbers));
  };
  return rotated_by(p, positions, m.op("Where", {is_long, frequencies(3), frequencies(1)}));
}

/// Dynamic NTK: beyond the limit every length has frequencies of its own, (factor n / limit - factor + 1)^-k. Where the
/// graph takes the length from: "mask", "sum", "keys" or "positions".
Graph by_formula(const std::string& from, int64_t beyond = limit) {
  Parts p;
  Maker& m = p.m;
  ValueId positions = m.input("position_ids", DType::i64, {m.dim("b"), m.dim("s")}), length = p.total;
  if (from == "sum") length = m.op("ReduceSum", {p.mask}, Maker::with("keepdims", int64_t{0}));
  if (from == "keys") length = m.op("Add", {m.size(p.past[0], 2), m.size(m.ids, 1)});
  if (from == "positions")
    length = m.op("Add", {m.op("ReduceMax", {positions}, Maker::with("keepdims", int64_t{0})), m.integer(1)});
  ValueId longer = m.op("Cast", {m.op("Max", {length, m.integer(beyond)})}, Maker::with("to", int64_t{1}));
  ValueId base = m.op("Sub", {m.op("Mul", {longer, m.real(2.0 / static_cast<double>(beyond))}), m.real(1)});
  float numbers[] = {-0.3f, -1.0f}, first[] = {1, 0.1f};
  ValueId powers = m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{2}, numbers));
  ValueId frequencies = m.graph.add_constant(Tensor::of<float>(DType::f32, Shape{2}, first));
  return rotated_by(p, positions, m.op("Mul", {frequencies, m.op("Pow", {base, powers})}));
}

std::vector<int32_t> tokens_of(int64_t count, int32_t seed = 3) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((i * 7 + i * i * seed) % DecoderMaker::vocabulary);
  return ids;
}

/// Logits of all tokens: `prompt` of them at once, or cut into parts of `chunk`, then the others one by one.
std::vector<float> run(Engine& engine, std::span<const int32_t> ids, int64_t prompt, int64_t chunk) {
  auto sequence = engine.open({}, prompt);
  std::vector<float> out;
  for (size_t at = 0; at < ids.size();) {
    int64_t left = prompt - static_cast<int64_t>(at);
    auto count = static_cast<size_t>(left > 0 ? std::min(left, chunk) : 1);
    EXPECT_TRUE(engine.reserve(*sequence, static_cast<int64_t>(count)));
    Feed feed{sequence.get(), ids.subspan(at, count), static_cast<int64_t>(count), {}, {}};
    engine.step({&feed, 1});
    out.insert(out.end(), feed.logits.begin(), feed.logits.end());
    at += count;
  }
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(expected[i]));
    error = std::max<double>(error, std::fabs(double{got[i]} - double{expected[i]}));
  }
  EXPECT_LT(error, 1e-5 * largest);
}

EngineOptions generous() {
  EngineOptions options = small_engine();
  options.step_tokens = 64;
  return options;
}

struct Spelling {
  const char* name;
  Graph (*make)();
};
class Lengths : public testing::TestWithParam<Spelling> {
 protected:
  Graph graph = GetParam().make();
  std::unique_ptr<Engine> raised = make_engine(graph, World::get().options(DType::f32), generous());
};

TEST_P(Lengths, TokensAreComputedAsTheGraphSaysForTheirSequence) {
  ASSERT_TRUE(raised->decoder().recognised) << recognise(graph, World::get().options()).why_not;
  EXPECT_EQ(raised->decoder().length_limits, std::vector<int64_t>{limit});
  auto plain = make_plain_engine(graph, World::get().options(), generous(), nullptr);
  std::vector<int32_t> ids = tokens_of(30);
  // Prompts below the limit, at it and beyond; what follows one by one crosses it.
  for (int64_t prompt : {1, 9, 19, 20, 21, 30}) {
    SCOPED_TRACE(prompt);
    std::vector<float> expected = run(*plain, ids, prompt, prompt);
    for (int64_t chunk : {prompt, int64_t{4}, int64_t{1}}) expect_near(run(*raised, ids, prompt, chunk), expected);
  }
  // The tables differ enough to be told apart.
  std::vector<float> one = run(*plain, ids, 20, 20), other = run(*plain, ids, 21, 21);
  double apart = 0;
  for (size_t i = 0; i < 20 * DecoderMaker::vocabulary; ++i)
    apart = std::max<double>(apart, std::fabs(one[i] - other[i]));
  EXPECT_GT(apart, 1e-3);
}

TEST_P(Lengths, CompanyChangesNothing) {
  std::vector<int32_t> shorter = tokens_of(12, 4), longer = tokens_of(26, 5);
  std::vector<float> alone[] = {run(*raised, shorter, 12, 12), run(*raised, longer, 26, 26)};
  auto first = raised->open({}, 12), second = raised->open({}, 26);
  ASSERT_TRUE(raised->reserve(*first, 12) && raised->reserve(*second, 26));
  Feed feeds[] = {{first.get(), shorter, 12, {}, {}}, {second.get(), longer, 26, {}, {}}};
  raised->step(feeds);
  for (size_t k : {size_t{0}, size_t{1}})
    EXPECT_TRUE(std::equal(alone[k].begin(), alone[k].end(), feeds[k].logits.begin(), feeds[k].logits.end()));
}

TEST_P(Lengths, PagesAreSharedByThoseThatChooseAlike) {
  std::vector<int32_t> ids = tokens_of(40);
  std::span<const int32_t> all(ids);
  auto held = [&](int64_t count) { return raised->open(all.first(static_cast<size_t>(count)))->length(); };
  run(*raised, all.first(18), 18, 18);  // a page of 16 is full
  EXPECT_EQ(held(19), 16);
  EXPECT_EQ(held(40), 0) << "a longer prompt takes the other table from its first token on";
  run(*raised, all, 40, 40);
  EXPECT_EQ(held(40), 32);
  EXPECT_EQ(held(19), 16);
  // A prompt of 18 whose answer has crossed the limit is found again as such, not as a prompt of 34.
  EXPECT_EQ(raised->open(all.first(34), 18)->length(), 16);
  EXPECT_EQ(raised->open(all.first(34), 34)->length(), 32);
}

TEST_P(Lengths, WhatIsSavedKeepsItsChoice) {
  std::vector<int32_t> ids = tokens_of(30);
  std::span<const int32_t> all(ids);
  std::vector<float> expected = run(*raised, ids, 25, 25);
  auto sequence = raised->open({}, 25);
  ASSERT_TRUE(raised->reserve(*sequence, 25));
  Feed feed{sequence.get(), all.first(25), 0, {}, {}};
  raised->step({&feed, 1});
  EXPECT_TRUE(raised->continues(*sequence, 30));
  EXPECT_FALSE(raised->continues(*sequence, 20));
  auto other = make_engine(graph, World::get().options(DType::f32), generous());
  auto restored = other->restore(raised->save(*sequence));
  EXPECT_TRUE(other->continues(*restored, 30));
  ASSERT_TRUE(other->reserve(*restored, 1));
  Feed next{restored.get(), all.subspan(25, 1), 1, {}, {}};
  other->step({&next, 1});
  expect_near({next.logits.begin(), next.logits.end()},
              {expected.begin() + 25 * DecoderMaker::vocabulary, expected.begin() + 26 * DecoderMaker::vocabulary});
}

/// Angles that every length has of its own are no choice that tokens of a row could make apart: such a graph runs as it
/// is, on either side of the limit and across it.
TEST(Formulas, OfTheLengthStayAsTheyAre) {
  for (const char* from : {"mask", "sum", "keys", "positions"}) {
    SCOPED_TRACE(from);
    Graph graph = by_formula(from);
    auto engine = make_engine(graph, World::get().options(DType::f32), generous());
    EXPECT_FALSE(engine->decoder().recognised);
    for (int64_t beyond : {int64_t{3000}, int64_t{1} << 20})  // further than any probe, too
      EXPECT_FALSE(recognise(by_formula(from, beyond), World::get().options()).recognised) << beyond;
    KernelTable kernels;
    register_reference_kernels(kernels);
    auto plain = make_plain_engine(graph, {World::get().ops, kernels}, generous(), nullptr);
    std::vector<int32_t> ids = tokens_of(30);
    for (int64_t prompt : {1, 19, 20, 21, 30}) {
      SCOPED_TRACE(prompt);
      expect_near(run(*engine, ids, prompt, prompt), run(*plain, ids, prompt, prompt));
    }
    std::vector<float> one = run(*plain, ids, 21, 21), other = run(*plain, ids, 22, 22);
    EXPECT_GT(std::fabs(one[20 * Maker::vocabulary] - other[20 * Maker::vocabulary]), 1e-4) << "a length alike";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Lengths,
                         testing::Values(Spelling{"If_in_grouped", by_if_in_grouped},
                                         Spelling{"If_in_rotation", by_if_in_rotation},
                                         Spelling{"frequencies", by_frequencies}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plait::test::lengths_forms

// com.microsoft.MultiHeadAttention in decoders: whatever its layout, its masks and its cache, the raised program gives the
// logits of the graph as it is written.
#include <gtest/gtest.h>

#include "core/passes/compile.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test::multi_head_forms {
namespace {

using Maker = DecoderMaker;

constexpr int64_t heads = 2, size = 4, width = heads * size;

/// What a test varies.
struct Form {
  std::string layout = "apart";  ///< or "packed", "pair", "heads"
  std::string mask = "causal";   ///< by attribute; or "bias", "each query"
  std::string padding;           ///< "", "all keys", "new keys", "lengths"
  bool past = true, biased = false;
  int64_t window = 0;
};

ValueId as_i32(Maker& m, ValueId id) { return m.op("Cast", {id}, Maker::with("to", int64_t{6})); }

/// Queries, keys and values [b, s, 8] in the layout: the op's first three inputs.
std::vector<ValueId> operands(Maker& m, const Form& form, std::vector<ValueId> caches) {
  ValueId x = m.embedded();
  if (form.layout == "packed")
    return {m.reshape(m.linear(x, Maker::hidden, 3 * width), {0, 0, heads, 3, size}), no_value, no_value};
  ValueId query = m.linear(x, Maker::hidden, width);
  if (form.layout == "pair")
    return {query, m.reshape(m.linear(x, Maker::hidden, 2 * width), {0, 0, heads, 2, size}), no_value};
  if (form.layout == "apart") return {query, m.linear(x, Maker::hidden, width), m.linear(x, Maker::hidden, width)};
  std::vector<ValueId> out{query};
  for (size_t k = 0; k < 2; ++k) {
    out.push_back(m.concat({caches[k], m.heads(x, heads, size)}, 2));
    m.present(k ? "value" : "key", out.back());
  }
  return out;
}

ValueId padding(Maker& m, const Form& form, ValueId mask) {
  if (form.padding == "all keys") return as_i32(m, mask);
  ValueId count = m.op("ReduceSum", {mask, m.ints({1})}, Maker::with("keepdims", int64_t{0}));
  if (form.padding == "lengths") return as_i32(m, count);
  std::vector<int32_t> one{1};
  if (form.padding == "new keys")
    return m.op("Expand",
                {m.graph.add_constant(Tensor::of<int32_t>(DType::i32, Shape{1, 1}, one)), m.op("Shape", {m.ids})});
  return no_value;
}

Graph decoder(const Form& form) {
  Maker m;
  ValueId mask = m.input("attention_mask", DType::i64, {m.dim("b"), m.dim("total")}), total = m.size(mask, 1);
  std::vector<ValueId> caches;
  if (form.past)
    for (const char* part : {"key", "value"}) caches.push_back(m.past(part, {m.dim("b"), heads, m.dim("p"), size}));
  std::vector<ValueId> inputs = operands(m, form, caches);
  inputs.push_back(form.biased ? m.weight({3 * width}) : no_value);
  ValueId seen = m.visible(total, form.window), bias = no_value, padded = padding(m, form, mask);
  if (form.mask == "each query") padded = as_i32(m, m.unsqueeze(seen, 0));
  if (form.mask == "bias") bias = m.op("Unsqueeze", {m.op("Where", {seen, m.real(0), m.real(-1e9)}), m.ints({0, 1})});
  inputs.push_back(padded);
  inputs.push_back(bias);
  const bool inside = form.past && form.layout != "heads";
  for (size_t k = 0; inside && k < 2; ++k) inputs.push_back(caches[k]);
  Attributes attributes = Maker::with("num_heads", heads);
  if (form.mask == "causal") attributes.set("unidirectional", int64_t{1});
  if (form.biased) attributes.set("scale", 0.3);
  auto made = m.ops("com.microsoft.MultiHeadAttention", inputs, inside ? 3 : 1, attributes);
  if (inside) m.present("key", made[1]), m.present("value", made[2]);
  return m.finish(made[0], width);
}

class MultiHead : public testing::TestWithParam<Form> {};

TEST_P(MultiHead, IsRecognised) {
  Decoder found = expect_raised_equals_plain(decoder(GetParam()));
  ASSERT_EQ(found.layers.size(), 1u);
  EXPECT_EQ(found.layers[0].kv_heads, heads);
  EXPECT_EQ(found.layers[0].key_size, size);
  EXPECT_EQ(found.layers[0].window, GetParam().window);
  EXPECT_NEAR(found.layers[0].scale, GetParam().biased ? 0.3 : 0.5, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, MultiHead,
                         testing::Values(Form{}, Form{.padding = "all keys"}, Form{.padding = "new keys"},
                                         Form{.padding = "lengths"}, Form{.mask = "each query"}, Form{.mask = "bias"},
                                         Form{.mask = "bias", .padding = "all keys"},
                                         Form{.mask = "bias", .padding = "new keys", .window = 6},
                                         Form{.biased = true}, Form{.layout = "packed"},
                                         Form{.layout = "packed", .past = false, .biased = true},
                                         Form{.layout = "pair"}, Form{.layout = "pair", .biased = true},
                                         Form{.layout = "heads", .mask = "bias"}, Form{.past = false},
                                         Form{.padding = "all keys", .past = false}));

TEST(MultiHeadAttention, OthersAreRefusedAndStillRun) {
  // Scores that the op hands out: no canonical op has them.
  Graph graph = decoder({});
  for (Node& node : graph.nodes)
    if (node.op == "com.microsoft.MultiHeadAttention") {
      ValueId scores = graph.add_value("scores");
      node.outputs.push_back(scores);
      graph.outputs.push_back(scores);
    }
  Decoder found = recognise(graph, World::get().options());
  EXPECT_FALSE(found.recognised);
  EXPECT_FALSE(found.why_not.empty());
}

}  // namespace
}  // namespace plait::test::multi_head_forms

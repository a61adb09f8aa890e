// Embedding graphs that take rows next to token ids: which part makes embeddings of ids, and for which ids rows are taken.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/passes/normalize/normalize.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test {
namespace {

using Maker = DecoderMaker;
constexpr int32_t image = 9, sound = 10;

/// Ids of rows become 0, which the table has.
ValueId text_of(Maker& m, ValueId is_row) {
  ValueId text = m.op("Where", {is_row, m.integer(0), m.ids});
  return m.op("Gather", {m.weight({Maker::vocabulary, Maker::hidden}), text}, Maker::with("axis", int64_t{0}));
}

ValueId features(Maker& m, const char* name, DType dtype = DType::f32) {
  return m.input(name, dtype, {m.dim(name), Maker::hidden});
}

/// One row for each place [b, s] of the mask.
ValueId put(Maker& m, ValueId into, ValueId is_row, ValueId rows) {
  return m.op("ScatterND", {into, m.transpose(m.op("NonZero", {is_row}), {1, 0}), rows});
}

Graph ended(Maker& m, ValueId output) {
  m.graph.value(output).name = "inputs_embeds";
  m.graph.outputs = {output};
  return std::move(m.graph);
}

TextEmbeddings found_in(const Graph& graph, const std::vector<int32_t>& known = {}) {
  return text_embeddings(graph, World::get().options(), known);
}

void expect_refused(const Graph& graph, const std::string& what) {
  try {
    found_in(graph);
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
  }
}

TEST(Embeddings, RowsOfImagesAndSounds) {
  Maker m;
  ValueId is_image = m.op("Equal", {m.ids, m.integer(image)}), is_sound = m.op("Equal", {m.ids, m.integer(sound)});
  ValueId text = text_of(m, m.op("Or", {is_image, is_sound}));
  ValueId merged = put(m, text, is_image, features(m, "image_features"));
  const TextEmbeddings found = found_in(ended(m, put(m, merged, is_sound, features(m, "audio_features"))));
  ASSERT_EQ(found.inputs.size(), 2u);
  EXPECT_EQ(found.inputs[0].name, "image_features");
  EXPECT_EQ(found.inputs[0].tokens, std::vector<int32_t>{image});
  EXPECT_EQ(found.inputs[1].tokens, std::vector<int32_t>{sound});
  EXPECT_EQ(found.graph.inputs.size(), 1u);
  EXPECT_EQ(found.graph.nodes.back().op, "Gather");
  EXPECT_EQ(found.graph.outputs, found.graph.nodes.back().outputs);
}

/// As Phi-3 vision's: negative ids, and rows of another type.
TEST(Embeddings, NegativeIdsStandForRows) {
  Maker m;
  ValueId is_row = m.op("Less", {m.ids, m.integer(0)});
  ValueId rows = m.op("Cast", {features(m, "image_features", DType::f16)}, Maker::with("to", int64_t{1}));
  const TextEmbeddings found = found_in(ended(m, put(m, text_of(m, is_row), is_row, rows)));
  EXPECT_EQ(found.inputs[0].tokens, (std::vector<int32_t>{-1, -2, -3, -4, -5, -6, -7, -8}));
}

/// Files that merge only where there are rows: the table is looked up before the branches, or in each.
TEST(Embeddings, AnIfThatAsksForRows) {
  std::string numbers;
  for (int i = 1; i <= 48; ++i) numbers += cat(" ", i);
  for (const bool inside : {false, true}) {
    Graph graph = parse_graph(cat(R"(
input %0 "input_ids" : i64[b, s]
input %1 "image_features" : f32[n, 4]
const %2 "table" = inline : f32[12, 4] =)", numbers, R"(
const %3 = inline : i64[] = 9
const %4 = inline : i64[] = 0
node "rows" : %5 : ?[...] = Size(%1)
node "some" : %6 : ?[...] = Greater(%5, %4)
node "text" : %7 : ?[...] = Gather(%2, %0)
node "if" : %8 "inputs_embeds" : ?[...] = If(%6, %7, %0, %1, %3, %2)
body "then_branch" {
  input %0 : ?[...]
  input %1 : ?[...]
  input %2 : ?[...]
  input %3 : ?[...]
  input %4 : ?[...]
  node "" : %5 : ?[...] = Equal(%1, %3)
  node "" : %6 : ?[...] = NonZero(%5)
  node "" : %7 : ?[...] = Transpose(%6) perm=ints[1, 0]
  node "" : %8 : ?[...] = Gather(%4, %1)
  node "" : %9 : ?[...] = ScatterND()", inside ? "%8" : "%0", R"(, %7, %2)
  output %9
}
body "else_branch" {
  input %0 : ?[...]
  input %1 : ?[...]
  input %2 : ?[...]
  input %3 : ?[...]
  input %4 : ?[...]
  node "" : %5 : ?[...] = Gather(%4, %1)
  output )", inside ? "%5" : "%0", R"(
}
output %8
)"));
    const TextEmbeddings found = found_in(graph);
    ASSERT_EQ(found.inputs.size(), 1u);
    EXPECT_EQ(found.inputs[0].name, "image_features");
    EXPECT_EQ(found.inputs[0].tokens, std::vector<int32_t>{9});
    EXPECT_EQ(found.graph.nodes.size(), 1u);
    EXPECT_EQ(found.graph.nodes[0].op, "Gather");
  }
}

TEST(Embeddings, FilesThatChangeRowsAreRefused) {
  Maker m;
  ValueId is_row = m.op("Equal", {m.ids, m.integer(image)});
  ValueId rows = m.op("Mul", {features(m, "image_features"), m.real(2)});
  expect_refused(ended(m, put(m, text_of(m, is_row), is_row, rows)), "rows are not taken unchanged");
}

TEST(Embeddings, OtherInputsAreRefused) {
  Maker m;
  ValueId switched = m.input("use_images", DType::boolean, {});
  ValueId text = text_of(m, m.op("Equal", {m.ids, m.integer(image)}));
  expect_refused(ended(m, m.op("Where", {switched, text, text})), "\"use_images\" is neither token ids nor rows");
}

}  // namespace
}  // namespace plait::test

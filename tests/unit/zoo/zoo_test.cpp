// Every export of the zoo, against ONNX Runtime.
#include "tests/unit/support/zoo.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/generate/engines.h"
#include "importers/onnx/export.h"

namespace plait::test {
namespace {

namespace fs = std::filesystem;

/// Several feeds, since a step of the small engine takes 24 tokens.
std::vector<float> prompt_logits(Engine& engine, Sequence& sequence, std::span<const int32_t> ids) {
  EXPECT_TRUE(engine.reserve(sequence, static_cast<int64_t>(ids.size())));
  Feed feed{&sequence, ids, static_cast<int64_t>(ids.size()), {}, {}};
  engine.step({&feed, 1});
  return {feed.logits.begin(), feed.logits.end()};
}

int32_t likeliest(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

void check_prompts(const ZooModel& model, Engine& engine) {
  for (const ZooPrompt& prompt : model.prompts) {
    SCOPED_TRACE(testing::Message() << prompt.ids.size() << " tokens");
    auto sequence = engine.open({});
    std::vector<float> logits = prompt_logits(engine, *sequence, prompt.ids);
    expect_close(model, logits, read_npy(prompt.logits));
    std::vector<int32_t> tokens;
    auto width = static_cast<size_t>(engine.vocabulary());
    while (tokens.size() < prompt.greedy.size()) {
      tokens.push_back(likeliest(std::span(logits).last(width)));
      logits = prompt_logits(engine, *sequence, {&tokens.back(), 1});
    }
    EXPECT_EQ(tokens, prompt.greedy);
  }
}

class Zoo : public testing::TestWithParam<ZooModel> {};

TEST_P(Zoo, RaisedAnswersLikeOnnxRuntime) {
  auto engine = make_engine(imported(GetParam()), World::get().options(), small_engine());
  const Decoder& found = engine->decoder();
  EXPECT_EQ(found.recognised, GetParam().plain.empty())
      << (found.recognised ? "it is listed as plain: " + GetParam().plain : found.why_not);
  check_prompts(GetParam(), *engine);
}

TEST_P(Zoo, PlainAnswersLikeOnnxRuntime) {
  if (!GetParam().raised_only.empty()) GTEST_SKIP() << GetParam().raised_only;
  auto engine = make_plain_engine(imported(GetParam()), World::get().options(), small_engine(), nullptr);
  check_prompts(GetParam(), *engine);
}

/// A merged decoder, its mask declared with a length of its own: what the branches hold stays apart.
TEST(Merged, PlainWithAMaskOfItsOwnLength) {
  int seen = 0;
  for (const ZooModel& model : zoo()) {
    if (model.name.find("/merged") == std::string::npos) continue;
    SCOPED_TRACE(model.name);
    Graph graph = imported(model);
    ValueId mask = graph.find("attention_mask");
    ASSERT_NE(mask, no_value);
    (*graph.value(mask).type.dims)[1] = graph.symbol("past_sequence_length + sequence_length");
    auto engine = make_plain_engine(graph, World::get().options(), small_engine(), nullptr);
    check_prompts(model, *engine);
    ++seen;
  }
  EXPECT_EQ(seen, 3);
}

/// The model's file and those next to it, as a host would hold them in memory.
ImportedModel from_memory(const ZooModel& model) {
  fs::path folder = fs::path(model.path).parent_path();
  return import_bytes(
      copy_blob({map_file(model.path)->data(), static_cast<size_t>(map_file(model.path)->size())}),
      [folder](const std::string& location) -> std::shared_ptr<const Blob> {
        auto blob = map_file((folder / location).string());
        return copy_blob({blob->data(), static_cast<size_t>(blob->size())});
      },
      World::get().ops);
}

std::string fingerprint(Graph graph) {
  return compile_plain(std::move(graph), World::get().options()).program->fingerprint;
}

/// Every constant of the graph, hashed, in the order of the values: what the text form leaves out.
uint64_t hash_of_weights(const Graph& graph) {
  std::string all;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    if (!graph.value(id).constant) continue;
    Tensor tensor = materialize(*graph.value(id).constant);
    all.append(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
  }
  return std::hash<std::string>()(all);
}

TEST_P(Zoo, ImportsAlikeFromFileAndMemory) {
  Graph first = imported(GetParam()), second = imported(GetParam()), third = from_memory(GetParam()).graph;
  EXPECT_EQ(text(first), text(second));
  EXPECT_EQ(text(first), text(third));
  EXPECT_EQ(hash_of_weights(first), hash_of_weights(third));
  std::string expected = fingerprint(first);
  EXPECT_EQ(fingerprint(second), expected);
  EXPECT_EQ(fingerprint(third), expected);
}

TEST_P(Zoo, ExportsWhatItImported) {
  fs::path folder = fs::path(testing::TempDir()) / ("plait_export_" + test_name(GetParam().name));
  fs::remove_all(folder);
  fs::path path = GetParam().path, beside = path.parent_path();
  auto resolver = [&](const std::string& location) -> std::shared_ptr<const Blob> {
    return map_file((beside / location).string());
  };
  export_model(map_file(path.string()), resolver, {}, folder.string(), "model.onnx");
  Graph before = imported(GetParam());
  Graph after = import_file((folder / "model.onnx").string(), World::get().ops).graph;
  EXPECT_EQ(text(after), text(before));
  EXPECT_EQ(hash_of_weights(after), hash_of_weights(before));
  EXPECT_EQ(fingerprint(after), fingerprint(before));
  EXPECT_THROW(export_model(map_file(path.string()), resolver, {}, folder.string(), "model.onnx"), Error);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, Zoo, testing::ValuesIn(zoo()),
                         [](const auto& info) { return test_name(info.param.name); });

/// Where a decoder is two files, the one for prompts has no past to read: raise gives it a cache; as written it
/// runs over the whole sequence again.
fs::path prompts_half(const ZooModel& model) { return fs::path(model.path).parent_path() / "decoder_model.onnx"; }

class Pairs : public testing::TestWithParam<ZooModel> {};

TEST_P(Pairs, TheHalfForPromptsGeneratesAlone) {
  Graph graph = import_file(prompts_half(GetParam()).string(), World::get().ops).graph;
  auto raised = make_engine(graph, World::get().options(), small_engine());
  EXPECT_TRUE(raised->decoder().recognised) << recognise(graph, World::get().options()).why_not;
  check_prompts(GetParam(), *raised);
  auto plain = make_plain_engine(graph, World::get().options(), small_engine(), nullptr);
  check_prompts(GetParam(), *plain);
}

std::vector<ZooModel> pairs() {
  std::vector<ZooModel> out;
  for (const ZooModel& model : zoo())
    if (model.path.ends_with("decoder_with_past_model.onnx")) out.push_back(model);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Pairs, testing::ValuesIn(pairs()),
                         [](const auto& info) { return test_name(info.param.name); });

}  // namespace
}  // namespace plait::test

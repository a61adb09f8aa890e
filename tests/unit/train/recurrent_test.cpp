// Training what carries a state along the tokens: causal convolutions and linear attention, next to attention or
// without it.
#include "tests/unit/support/hybrid_maker.h"
#include "tests/unit/train/runs.h"

namespace plait::test {
namespace {

struct Model {
  std::string name;
  Graph graph;
};

/// Each rule; heads that share queries, keys or states; a decay for each key; a kernel without an op of its own.
std::vector<Model> models() {
  std::vector<Model> out;
  auto add = [&](const std::string& name, const Hybrid& what) { out.push_back({name, named(hybrid_graph(what))}); };
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) add(rule, {.rule = rule});
  add("shared states", {.queries = 4, .keys = 2, .states = 2, .decay_each = true});
  add("shared queries", {.queries = 2, .keys = 2, .states = 4, .beta_for_all = true});
  add("only a convolution", {.attention = false, .rule = "", .spelling = "concat", .cached = false});
  return out;
}

std::vector<Model> files() {
  std::vector<Model> out;
  for (const char* name : {"lfm2/genai_fp32/model.onnx", "lfm2_moe/hf5/decode.onnx"})
    out.push_back({name, import_file(std::string(PLAIT_FIXTURES "/zoo/") + name, World::get().ops).graph});
  return out;
}

TEST(Recurrences, EqualOneRankOnMeshes) {
  for (const Model& model : models()) {
    const Outcome expected = run(model.graph, "", training(OptimizerKind::sgd, 0), nullptr, DType::f64);
    for (const auto& [mesh, zero] : {std::pair{"data=2", 1}, {"tensor=2", 2}, {"data=2,tensor=2", 3}}) {
      SCOPED_TRACE(cat(model.name, " ", mesh, " zero ", zero));
      expect_same(run(model.graph, mesh, training(OptimizerKind::sgd, zero), nullptr, DType::f64), expected, in_f64);
    }
  }
}

TEST(Recurrences, FilesEqualOneRankOnMeshes) {
  for (const Model& model : files()) {
    SCOPED_TRACE(model.name);
    const Outcome expected = run(model.graph, "", training(OptimizerKind::sgd, 0));
    for (int zero : {0, 3})
      expect_same(run(model.graph, "data=2,tensor=2", training(OptimizerKind::sgd, zero)), expected);
  }
}

TEST(Recurrences, AdaptersAndRecomputation) {
  std::vector<Model> all{files()[0]};
  all.push_back({"gated_delta", named(hybrid_graph({}))});
  for (const Model& model : all) {
    SCOPED_TRACE(model.name);
    TrainingOptions options = training(OptimizerKind::sgd, 0);
    for (int64_t rank : {0, 4}) {
      options.lora.rank = rank;
      options.recompute = Recompute::off;
      const Outcome expected = run(model.graph, "", options);
      EXPECT_LT(expected.losses.back(), expected.losses.front());
      expect_same(run(model.graph, "data=2,tensor=2", options), expected);
      for (const Recompute how : {Recompute::selective, Recompute::full}) {
        options.recompute = how;
        const Outcome again = run(model.graph, "", options);
        EXPECT_EQ(again.losses, expected.losses);
        EXPECT_EQ(again.norms, expected.norms);
      }
    }
  }
}

/// What a document's tokens give does not depend on its neighbours in a row.
TEST(Recurrences, PackedDocumentsAreKeptApart) {
  std::vector<Model> all = models();
  all.push_back(files()[0]);
  for (const Model& model : all) {
    SCOPED_TRACE(model.name);
    TrainingOptions options = training(OptimizerKind::sgd, 0);
    options.row_tokens = 256;
    ThreadPool pool(2);
    TrainingEngine packed(model.graph, World::get().options(DType::f64), options, pool),
        alone(model.graph, World::get().options(DType::f64), options, pool);
    const auto all_documents =
        documents(static_cast<int32_t>(std::min<int64_t>(97, packed.model().decoder.vocabulary)));
    std::vector<TrainingSample> samples;
    for (const auto& document : all_documents) samples.push_back({document, {}});
    std::vector<int64_t> numbers;
    double loss = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      numbers.push_back(static_cast<int64_t>(i));
      loss += alone.accumulate({.rows = {fill_row(samples, std::vector<int64_t>{numbers.back()})}, .weight = 0.125});
    }
    EXPECT_NEAR(packed.accumulate({.rows = {fill_row(samples, numbers)}, .weight = 0.125}), loss, 1e-12 * loss);
    for (const TrainedParameter& one : packed.parameters()) {
      Tensor difference = copy(packed.array(one.key + ".gradient"));
      const Tensor expected = copy(alone.array(one.key + ".gradient"));
      for (int64_t i = 0; i < expected.elements(); ++i) difference.as<double>()[i] -= expected.as<double>()[i];
      EXPECT_LE(norm(difference), 1e-10 * norm(expected) + 1e-12 * alone.gradient_norm()) << one.name;
      EXPECT_GT(norm(expected), 0) << one.name;
    }
  }
}

}  // namespace
}  // namespace plait::test

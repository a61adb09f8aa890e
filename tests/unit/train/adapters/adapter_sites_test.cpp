// Adapters of all kinds of weights: products, tables, experts. Their gradients, their way out, and back.
#include <gtest/gtest.h>

#include <random>

#include "core/train/adapters/adapter_file.h"
#include "core/base/safetensors.h"
#include "core/train/trained_weights.h"
#include "tests/unit/support/models.h"
#include "tests/unit/train/runs.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

using Texts = std::vector<std::string>;
constexpr const char *few_experts = "zoo/mixtral/dynamo18", *qwen_experts = "zoo/qwen3_moe/optimum18";

TrainingOptions adapting(const Texts& targets) {
  TrainingOptions out = training(OptimizerKind::sgd, 0);
  out.lora.rank = 3;
  out.lora.alpha = 6;
  out.lora.targets = targets;
  return out;
}

PackedStep step_of(const TrainingEngine& engine) {
  std::vector<TrainingSample> samples;
  const auto all = documents();
  for (const auto& document : all) samples.push_back({document, {}});
  return pack_step(samples, row_tokens, engine.data_ranks());
}

double accumulate(TrainingEngine& engine) {
  const PackedStep packed = step_of(engine);
  double loss = 0;
  for (const auto& rows : packed.rows)
    loss += engine.accumulate(
        {.rows = rows, .weight = 1 / static_cast<double>(packed.targets), .last = &rows == &packed.rows.back()});
  return loss;
}

/// Adapters that change every result, a and b alike.
void scatter(TrainingEngine& engine) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.2f);
  for (const TrainedParameter& one : engine.parameters()) {
    Tensor values(DType::f32, one.shape);
    for (int64_t i = 0; i < values.elements(); ++i) values.as<float>()[i] = normal(random);
    engine.set_array(one.key, values.view());
  }
}

std::string recipe_of(const Constant& constant) {
  std::vector<RecipeStep> steps = constant.steps;
  std::erase_if(steps, [](const RecipeStep& one) { return one.kind == RecipeStep::Kind::cast; });
  return text(steps);
}

/// What a run of all weights calls the weight that an adapter stands next to.
const TrainedParameter* weight_of(const TrainingEngine& all, const Constant& base) {
  for (const TrainedParameter& one : all.parameters())
    if (one.origin->initializer == base.initializer && recipe_of(*one.origin) == recipe_of(base) &&
        one.origin->parts.size() == base.parts.size() &&
        (base.parts.empty() || one.origin->parts[0].initializer == base.parts[0].initializer))
      return &one;
  return nullptr;
}

/// sum over j of a[i, j] b[j, k], where the matrices lie as they are or turned.
std::vector<double> product(const double* a, bool a_transposed, const double* b, bool b_transposed, int64_t rows,
                            int64_t inner, int64_t columns) {
  std::vector<double> out(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < inner; ++j)
      for (int64_t k = 0; k < columns; ++k)
        out[static_cast<size_t>(i * columns + k)] += (a_transposed ? a[j * rows + i] : a[i * inner + j]) *
                                                     (b_transposed ? b[k * inner + j] : b[j * columns + k]);
  return out;
}

void expect_near(const std::vector<double>& expected, const double* got, double scale, const std::string& what) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    apart += std::pow(scale * expected[i] - got[i], 2);
    size += std::pow(scale * expected[i], 2);
  }
  EXPECT_GT(size, 0) << what;
  EXPECT_LT(std::sqrt(apart / size), 1e-4) << what;  // sums of some hundred products in f32
}

/// With w' = w + s b a and the gradient W of w', b has s W a^T and a has s b^T W. W is that of a run of all weights
/// of the merged model, which is held against PyTorch's in golden_training_test.
void expect_chain(const TrainingEngine& adapted, const TrainingEngine& all) {
  const std::vector<TrainedParameter>& parameters = adapted.parameters();
  const double scale = adapted.training().lora.alpha / static_cast<double>(adapted.training().lora.rank);
  for (size_t i = 0; i + 1 < parameters.size(); i += 2) {
    const TrainedParameter &a = parameters[i], &b = parameters[i + 1];
    SCOPED_TRACE(a.name);
    ASSERT_TRUE(b.base);
    const TrainedParameter* whole = weight_of(all, *b.base);
    ASSERT_TRUE(whole);
    const bool of_table = a.name.ends_with(table_a);
    const int64_t rank = a.shape[a.shape.rank() - 2], k = a.shape[a.shape.rank() - 1],
                  n = b.shape[b.shape.rank() - 2];
    const Tensor w = copy(all.array(whole->key + ".gradient")), va = copy(adapted.array(a.key)),
                 vb = copy(adapted.array(b.key)), da = copy(adapted.array(a.key + ".gradient")),
                 db = copy(adapted.array(b.key + ".gradient"));
    ASSERT_EQ(w.elements() % (n * k), 0);
    for (int64_t e = 0; e < w.elements() / (n * k); ++e) {
      const double *gradient = w.as<double>() + e * n * k, *of_a = va.as<double>() + e * rank * k,
                   *of_b = vb.as<double>() + e * n * rank;
      expect_near(product(gradient, of_table, of_a, true, n, k, rank), db.as<double>() + e * n * rank, scale, "b");
      expect_near(product(of_b, true, gradient, of_table, rank, n, k), da.as<double>() + e * rank * k, scale, "a");
    }
  }
}

struct SiteCase {
  const char *fixture, *target;
};

class AdapterKinds : public testing::TestWithParam<SiteCase> {
 protected:
  TrainingEngine engine(const TrainingOptions& options, const Graph& graph) {
    return TrainingEngine(graph, World::get().options(), options, pool_);
  }
  const Graph graph_ = fixture_graph(GetParam().fixture);
  ThreadPool pool_{2};
};

TEST_P(AdapterKinds, LearnAsTheMergedWeightDoes) {
  TrainingEngine adapted = engine(adapting({GetParam().target}), graph_);
  ASSERT_GT(adapted.parameters().size(), 0u);
  scatter(adapted);
  const double loss = accumulate(adapted);
  TrainingEngine all = engine(training(OptimizerKind::sgd, 0), with_tensors(graph_, trained_tensors(adapted)));
  EXPECT_NEAR(accumulate(all), loss, 1e-5 * loss);
  expect_chain(adapted, all);
}

TEST_P(AdapterKinds, LoadBack) {
  const Folder folder;
  TrainingEngine adapted = engine(adapting({GetParam().target}), graph_);
  scatter(adapted);
  save_adapter(adapted, folder.path("adapter"));
  TrainingOptions read;
  read.begin_with(read_adapter(folder.path("adapter")));
  read.row_tokens = row_tokens;
  TrainingEngine again = engine(read, graph_);
  load_adapter(again, folder.path("adapter"));
  const PackedStep step = step_of(adapted);
  for (const auto& rows : step.rows) EXPECT_EQ(again.evaluate({.rows = rows}), adapted.evaluate({.rows = rows}));
}

INSTANTIATE_TEST_SUITE_P(Sites, AdapterKinds,
                         testing::Values(SiteCase{"llama-untied-optimum18", "embedding"},
                                         SiteCase{"llama-untied-optimum18", "head"},
                                         SiteCase{"gpt2-optimum18", "*wpe*"},
                                         SiteCase{"gpt2-optimum18", "attention_output"},
                                         SiteCase{few_experts, "experts"}, SiteCase{qwen_experts, "experts"},
                                         SiteCase{"zoo/gpt_oss_fused/genai_fp32", "experts"}),
                         [](const auto& info) { return cat("Case", info.index); });

/// A packed module has rows of all its parts in the file, whichever were trained: PEFT knows no others.
TEST(AdaptersOfParts, AreOfTheWholeModuleInTheFile) {
  ThreadPool pool(2);
  const Graph graph = fixture_graph("gpt2-optimum18");
  for (const Texts& targets : {Texts{"query"}, {"value"}, {"query", "value"}, {"query", "key", "value"}}) {
    SCOPED_TRACE(join(targets, " "));
    for (const bool trained : {false, true}) {  // b begins as zeros
      const Folder folder;
      TrainingEngine adapted(graph, World::get().options(), adapting(targets), pool);
      if (trained) scatter(adapted);
      save_adapter(adapted, folder.path());
      const AdapterWeights file = read_adapter(folder.path());
      const Shape& b = file.modules.at("transformer.h.0.attn.c_attn").b.shape();
      EXPECT_EQ(b, (Shape{192, 3 * static_cast<int64_t>(targets.size())}));
      TrainingOptions read;
      read.begin_with(file);
      read.row_tokens = row_tokens;
      TrainingEngine again(graph, World::get().options(), read, pool);
      load_adapter(again, folder.path());
      const PackedStep step = step_of(adapted);
      for (const auto& rows : step.rows)
        EXPECT_NEAR(again.evaluate({.rows = rows}), adapted.evaluate({.rows = rows}),
                    1e-5 * adapted.evaluate({.rows = rows}));
    }
  }
}

TEST(AdaptersOfExperts, AreTheSameOnMeshes) {
  const TrainingOptions options = adapting({"experts", "embedding"});
  const Outcome expected = run(few_experts, "", options);
  for (const int zero : {0, 3}) {
    SCOPED_TRACE(cat("zero ", zero));
    TrainingOptions cut = options;
    cut.zero = zero;
    const Outcome got = run(few_experts, "data=2,tensor=2", cut, nullptr, DType::none, {"expert_data"});
    expect_same(got, expected);
  }
}

/// Else a run would keep a second copy of all experts from forward to backward.
TEST(AdaptersOfExperts, AreMadeAgainRatherThanKept) {
  ThreadPool pool(1);
  const auto made = [&](Recompute how) {
    TrainingOptions options = adapting({"experts"});
    options.recompute = how;
    const TrainingEngine engine(fixture_graph(few_experts), World::get().options(), options, pool);
    const auto& all = engine.model().program(TrainingProgram::accumulate).instructions;
    return std::count_if(all.begin(), all.end(), [](const Instruction& one) {
      return one.kernel && one.kernel->op == "MatMul" && one.origin.find("adapter") != std::string::npos;
    });
  };
  const auto weights = 2 * 3;  // layers, products
  EXPECT_EQ(made(Recompute::selective), made(Recompute::off) + weights);
  TrainingOptions options = adapting({"experts"});
  const Outcome kept = run(few_experts, "", options);
  options.recompute = Recompute::selective;
  expect_equal(run(few_experts, "", options), kept);
}

TEST(AdapterTargets, ThatTakeNoneAreRefused) {
  ThreadPool pool(1);
  const auto refused = [&](const char* fixture, const TrainingOptions& options, Code code, const char* word) {
    expect_error([&] { TrainingEngine(fixture_graph(fixture), World::get().options(), options, pool); }, code, word);
  };
  refused("zoo/gpt_oss_fused/q_experts", adapting({"experts"}), Code::unsupported, "quantised");
  TrainingOptions dropping = adapting({"experts"});
  dropping.lora.dropout = 0.1;
  refused(few_experts, dropping, Code::unsupported, "dropout");
  refused("llama-standard23", adapting({"experts"}), Code::invalid_argument, "\"experts\"");
}

/// PEFT's names: the experts' own, a table's matrices, and a head that is the table, which is a module next to it.
TEST(AdapterNames, AreThoseOfPeft) {
  ThreadPool pool(1);
  const auto names = [&](const char* fixture, const char* target) {
    const Folder folder;
    save_adapter(TrainingEngine(fixture_graph(fixture), World::get().options(), adapting({target}), pool),
                 folder.path());
    std::map<std::string, Shape> out;
    const SafeTensors file = SafeTensors::open(folder.path("adapter_model.safetensors"));
    for (const auto& [name, entry] : file.entries()) out[name] = entry.shape;
    return out;
  };
  const std::string begin = "base_model.model.model.";
  const auto table = names("llama-untied-optimum18", "embedding");
  EXPECT_EQ(table.at(begin + "embed_tokens.lora_embedding_A"), (Shape{3, 512}));
  EXPECT_EQ(table.at(begin + "embed_tokens.lora_embedding_B")[1], 3);
  const auto experts = names(qwen_experts, "experts");
  EXPECT_EQ(experts.size(), 2u * 2 * 3 * 4) << "halves, layers, products, experts";
  EXPECT_EQ(experts.at(begin + "layers.1.mlp.experts.3.up_proj.lora_A.weight"), (Shape{3, 48}));
  for (const auto& [name, shape] : names("gemma3-standard23", "head"))
    EXPECT_THAT(name, testing::HasSubstr("lm_head.lora_"));
}

/// PEFT writes a table next to its adapter; what is in it is the model's.
TEST(AdapterNames, TablesBesideTheirAdaptersAreLeftAlone) {
  const Folder folder;
  ThreadPool pool(1);
  save_adapter(
      TrainingEngine(fixture_graph("llama-untied-optimum18"), World::get().options(), adapting({"embedding"}), pool),
      folder.path());
  const AdapterWeights alone = read_adapter(folder.path());
  const Tensor table(DType::f32, {512, 56});
  std::vector<NamedTensor> named{{"base_model.model.model.embed_tokens.base_layer.weight", table.view()}};
  for (const auto& [module, pair] : alone.modules) {
    named.push_back({cat("base_model.model.", module, table_a), pair.a.view()});
    named.push_back({cat("base_model.model.", module, table_b), pair.b.view()});
  }
  write_safetensors(folder.path("adapter_model.safetensors"), named, {});
  EXPECT_EQ(read_adapter(folder.path()).modules.size(), alone.modules.size());
}

}  // namespace
}  // namespace plait::test

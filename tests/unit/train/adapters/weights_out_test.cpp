// What was trained finds its way out: into the user's own file, and into adapters that load back.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/train/data/document_encoder.h"
#include "core/base/safetensors.h"
#include "core/train/trained_weights.h"
#include "core/train/trainer.h"
#include "importers/onnx/export.h"
#include "tests/unit/support/models.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

PackedRow row() {
  PackedRow out;
  for (int document = 0; document < 2; ++document)
    for (int k = 0; k < 12; ++k) {
      out.ids.push_back(3 + document * 11 + k * (document + 1));
      out.positions.push_back(k);
      out.segments.push_back(document);
      out.labels.push_back(3 + document * 11 + (k + 1) * (document + 1));
    }
  return out;
}

TrainingOptions options(int64_t rank = 0) {
  TrainingOptions out;
  out.row_tokens = 32;
  out.lora.rank = rank;
  return out;
}

void train(TrainingEngine& engine, double rate) {
  for (int step = 0; step < 3; ++step) {
    engine.accumulate({.rows = {row()}, .weight = 1.0 / 24});
    engine.update(1, rate);
  }
}

class WeightsOut : public testing::TestWithParam<std::string> {
 protected:
  TrainingEngine engine(int64_t rank = 0) {
    return TrainingEngine(fixture_graph(GetParam()), World::get().options(), options(rank), pool_);
  }
  /// The user's file with these tensors, read again, has this loss.
  void expect_loss_of_file(const std::map<std::string, Tensor>& tensors, double loss) {
    std::set<std::string> taken;
    const ChangedTensor changed = [&](const std::string& name) -> std::optional<Tensor> {
      auto found = tensors.find(name);
      if (found == tensors.end()) return std::nullopt;
      taken.insert(name);
      return found->second;
    };
    const std::string original = fixture(GetParam());
    const ExternalResolver beside = [&](const std::string& location) {
      return map_file(original.substr(0, original.rfind('/') + 1) + location);
    };
    export_model(map_file(original), beside, {changed}, folder_.path(), "model.onnx");
    EXPECT_EQ(taken.size(), tensors.size());
    TrainingEngine again(import_file(folder_.path("model.onnx"), World::get().ops).graph, World::get().options(),
                         options(), pool_);
    // Files of 16 bits round what was trained in 32.
    const bool whole = GetParam().find("16") == std::string::npos;
    EXPECT_NEAR(again.evaluate({.rows = {row()}}), loss, (whole ? 1e-5 : 3e-2) * loss);
  }

  Folder folder_;
  ThreadPool pool_{2};
};

TEST_P(WeightsOut, TheNewFileHasTheSameLoss) {
  TrainingEngine engine = this->engine();
  const double before = engine.evaluate({.rows = {row()}});
  train(engine, 1e-2);
  const double trained = engine.evaluate({.rows = {row()}});
  EXPECT_LT(trained, 0.95 * before);

  expect_loss_of_file(trained_tensors(engine, &pool_), trained);
}

TEST_P(WeightsOut, AdaptersAreMerged) {
  TrainingEngine engine = this->engine(4);
  const double before = engine.evaluate({.rows = {row()}});
  train(engine, 1e-2);
  const double trained = engine.evaluate({.rows = {row()}});
  EXPECT_LT(trained, 0.99 * before);
  expect_loss_of_file(trained_tensors(engine, &pool_), trained);
}

TEST_P(WeightsOut, AdaptersLoadBack) {
  TrainingEngine engine = this->engine(4);
  const double before = engine.evaluate({.rows = {row()}});
  train(engine, 1e-2);
  const double trained = engine.evaluate({.rows = {row()}});
  EXPECT_LT(trained, before);
  save_adapter(engine, folder_.path("adapter"), "base");
  TrainingEngine again = this->engine(4);
  EXPECT_EQ(again.evaluate({.rows = {row()}}), before);
  load_adapter(again, folder_.path("adapter"));
  EXPECT_EQ(again.evaluate({.rows = {row()}}), trained);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, WeightsOut,
                         testing::Values("gpt2-optimum18", "gemma3-optimum18", "gemma3-standard23-bf16",
                                         "llama-standard23", "llama-standard23-f16", "llama-dynamo23",
                                         "llama-untied-optimum18", "qwen2-optimum18", "qwen3-dynamo23"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(AdapterTargets, AreRolesOrNames) {
  ThreadPool pool(2);
  const auto modules = [&](std::vector<std::string> targets) {
    TrainingOptions training = options(4);
    training.lora.targets = std::move(targets);
    const TrainingEngine engine(fixture_graph("llama-standard23"), World::get().options(), training, pool);
    std::set<std::string> out;
    for (const TrainedParameter& one : engine.parameters()) {
      const std::string module = one.name.substr(0, one.name.find(".lora_"));
      out.insert(module.substr(module.rfind('.') + 1));
    }
    return out;
  };
  using testing::UnorderedElementsAre;
  EXPECT_THAT(modules({"query", "value"}), UnorderedElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(modules({"attention"}), UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj"));
  EXPECT_THAT(modules({"feed_forward", "*.o_proj.*"}),
              UnorderedElementsAre("gate_proj", "up_proj", "down_proj", "o_proj"));
  expect_error([&] { modules({"queries"}); }, Code::invalid_argument, "queries");
}

class Adapters : public testing::Test {
 protected:
  TrainingEngine engine(int64_t rank, const std::string& model = "llama-standard23") {
    return TrainingEngine(fixture_graph(model), World::get().options(), options(rank), pool_);
  }
  Folder folder_;
  ThreadPool pool_{2};
};

TEST_F(Adapters, AreInTheLayoutOfPeft) {
  TrainingEngine engine = this->engine(4);
  save_adapter(engine, folder_.path(), "base");
  const SafeTensors file = SafeTensors::open(folder_.path("adapter_model.safetensors"));
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  ASSERT_TRUE(file.has(q + "A.weight"));
  EXPECT_EQ(file.entries().at(q + "A.weight").shape[0], 4);
  EXPECT_EQ(file.entries().at(q + "B.weight").shape[1], 4);
  const std::string config = bytes_of(folder_.path("adapter_config.json"));
  for (const char* word :
       {"\"peft_type\": \"LORA\"", "\"r\": 4", "\"lora_alpha\": 16", "model.layers.0.self_attn.q_proj"})
    EXPECT_THAT(config, testing::HasSubstr(word));
}

TEST_F(Adapters, ThatDoNotFitAreRefusedAndChangeNothing) {
  TrainingEngine engine = this->engine(4);
  const TrainingEngine whole = this->engine(0);
  expect_error([&] { save_adapter(whole, folder_.path()); }, Code::invalid_argument, "no adapters");
  expect_error([&] { load_adapter(engine, folder_.path("none")); }, Code::not_found, "adapter_config.json");
  TrainingEngine two = this->engine(2), other = this->engine(4, "gpt2-optimum18");
  save_adapter(two, folder_.path("two"));
  expect_error([&] { load_adapter(engine, folder_.path("two")); }, Code::invalid_argument, "r is 2");
  save_adapter(other, folder_.path("other"));
  const double before = engine.evaluate({.rows = {row()}});
  expect_error([&] { load_adapter(engine, folder_.path("other")); }, Code::invalid_argument, "has no");
  folder_.write("two/adapter_config.json", "{");
  expect_error([&] { load_adapter(engine, folder_.path("two")); }, Code::bad_model, "no JSON object");
  EXPECT_EQ(engine.evaluate({.rows = {row()}}), before);
}

/// Damaged files, and kinds that are not read, are named with what is wrong.
TEST_F(Adapters, FilesThatAreNoneAreRefused) {
  TrainingEngine engine = this->engine(4);
  save_adapter(engine, folder_.path());
  const std::string config = bytes_of(folder_.path("adapter_config.json")),
                    tensors = bytes_of(folder_.path("adapter_model.safetensors"));
  EXPECT_EQ(read_adapter(folder_.path()).rank, 4);
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string out = config;
    out.replace(out.find(from), from.size(), to);
    folder_.write("adapter_config.json", out);
  };
  auto refused = [&](Code code, const std::string& word) {
    expect_error([&] { read_adapter(folder_.path()); }, code, word, folder_.path());
  };
  changed("\"LORA\"", "\"IA3\"");
  refused(Code::unsupported, "another kind");
  changed("\"LORA\"", "7");
  refused(Code::unsupported, "another kind");
  changed("\"r\": 4", "\"use_dora\": true, \"r\": 4");
  refused(Code::unsupported, "another kind");
  changed("\"rank_pattern\": {}", "\"rank_pattern\": {\"layers.0.self_attn.q_proj\": 8}");
  refused(Code::unsupported, "its rank 8");
  changed("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"(\": 8}");
  refused(Code::unsupported, "regular expression");
  changed("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": \"8\"}");
  refused(Code::bad_model, "alpha_pattern");
  for (const char* rank : {"0", "-1", "1e300", "\"4\""}) {
    changed("\"r\": 4", std::string("\"r\": ") + rank);
    refused(Code::bad_model, "r");
  }
  changed("\"r\": 4", "\"r\": 5");
  refused(Code::unsupported, "its rank 5");
  changed("\"lora_alpha\": 16", "\"use_rslora\": true, \"lora_alpha\": 16");
  EXPECT_EQ(read_adapter(folder_.path()).alpha, 32) << "of alpha / sqrt(rank) this is the factor";
  folder_.write("adapter_config.json", config);
  folder_.write("adapter_model.safetensors", tensors.substr(0, tensors.size() / 2));
  refused(Code::bad_model, "adapter_model.safetensors");
  std::filesystem::remove(folder_.path("adapter_model.safetensors"));
  refused(Code::not_found, "adapter_model.safetensors");
}

/// Keys of alpha_pattern and rank_pattern are what PEFT 0.21 makes of them: re.match(rf"(.*\.)?({key})$", module), the first in the file's
/// order; with "^" from the name's beginning. A factor of its own is part of B.
TEST_F(Adapters, PatternsAreRegularExpressions) {
  TrainingEngine engine = this->engine(4);
  save_adapter(engine, folder_.path());
  SafeTensors file = SafeTensors::open(folder_.path("adapter_model.safetensors"));
  std::vector<Tensor> kept;
  std::vector<NamedTensor> named;
  for (const auto& [name, entry] : file.entries()) {
    Tensor values(DType::f32, entry.shape);
    std::fill_n(reinterpret_cast<float*>(values.data()), values.elements(), 1.0F);
    kept.push_back(std::move(values));
    named.push_back({name, kept.back().view()});
  }
  write_safetensors(folder_.path("adapter_model.safetensors"), named);
  const std::string config = bytes_of(folder_.path("adapter_config.json"));
  const auto factor = [&](const std::string& pattern, const std::string& module) {
    std::string out = config;
    const std::string from = "\"alpha_pattern\": {}";
    out.replace(out.find(from), from.size(), cat("\"alpha_pattern\": {", pattern, "}"));
    folder_.write("adapter_config.json", out);
    const AdapterWeights adapter = read_adapter(folder_.path());
    return *adapter.modules.at(module).b.as<float>() * adapter.alpha / 16;
  };
  const std::string q = "model.layers.0.self_attn.q_proj", up = "model.layers.1.mlp.up_proj";
  for (const auto& [pattern, of_q, of_up] :
       {std::tuple{R"("q_proj": 8)", 0.5, 1.0}, {R"("proj": 8)", 1, 1}, {R"(".*proj": 8)", 0.5, 0.5},
        {R"("layers\\.[0-9]+\\.self_attn.(q|k)_proj": 8)", 0.5, 1}, {R"("up_proj|q_proj": 48)", 3, 3},
        {R"("self_attn": 8)", 1, 1}, {R"("^model.layers.0": 8)", 0.5, 1}, {R"("^layers.0": 8)", 1, 1},
        {R"("\\w+_proj": 32, "q_proj": 8)", 2, 2}, {R"("q_proj": 8, "\\w+_proj": 32)", 0.5, 2}}) {
    EXPECT_EQ(factor(pattern, q), of_q) << pattern;
    EXPECT_EQ(factor(pattern, up), of_up) << pattern;
  }
  // What is no number is refused wherever adapters are read.
  folder_.write("adapter_config.json", config);
  *reinterpret_cast<float*>(kept.front().data()) = std::nanf("");
  write_safetensors(folder_.path("adapter_model.safetensors"), named);
  expect_error([&] { read_adapter(folder_.path()); }, Code::numeric, "NaN", folder_.path());
}

TEST_F(Adapters, OfATableThatIsTheHeadTooAreNotMerged) {
  TrainingOptions tied = options(4);
  TrainingEngine probe(fixture_graph("gpt2-optimum18"), World::get().options(), options(), pool_);
  tied.lora.targets = {probe.parameters()[0].name};
  TrainingEngine engine(fixture_graph("gpt2-optimum18"), World::get().options(), tied, pool_);
  ASSERT_EQ(engine.parameters().size(), 4u) << "of the table and of the head";
  expect_error([&] { trained_tensors(engine); }, Code::unsupported, "read by others");
}

/// The numbers of a run's checkpoint contain all that it changed, whatever it began with.
TEST(BegunWithACheckpoint, TheModelIsTheSameWhereAllIsTrained) {
  const Folder folder;
  ThreadPool pool(2);
  const Graph graph = fixture_graph("gpt2-optimum18");
  const auto data = [] { return Dataset::of({{{3, 4, 5, 6, 7, 8}, {}}, {{9, 8, 7, 6, 5}, {}}}, {.seq = 16}); };
  const auto run = [&](const Graph& from, const char* name, int64_t rank) {
    TrainerOptions options;
    options.training = test::options(rank);
    options.rate = {.peak = 1e-2, .schedule = RateSchedule::constant};
    options.steps = 2;
    options.batch = 2;
    options.directory = folder.path(name);
    Trainer trainer(from, World::get().options(), options, data(), std::nullopt, pool);
    trainer.run();
    return trainer.evaluate(data()).loss;
  };
  const auto tensors = [&](const Graph& of, const char* name) {
    return tensors_of_checkpoint(of, World::get().options(), folder.path(name), &pool);
  };
  const auto loss_of = [&](const Graph& of) {
    TrainerOptions options;
    options.training = test::options();
    options.rate.schedule = RateSchedule::constant;
    return Trainer(of, World::get().options(), options, std::nullopt, std::nullopt, pool).evaluate(data()).loss;
  };
  run(graph, "first", 0);
  const Graph begun = with_tensors(graph, tensors(graph, "first"));
  const double second = run(begun, "second", 0), adapted = run(begun, "adapted", 4);
  for (const Graph* of : {&graph, &begun})
    EXPECT_NEAR(loss_of(with_tensors(*of, tensors(*of, "second"))), second, 1e-6);
  // Adapters are nothing without the weights next to them.
  expect_error([&] { tensors(graph, "adapted"); }, Code::invalid_argument, "another model");
  EXPECT_NEAR(loss_of(with_tensors(begun, tensors(begun, "adapted"))), adapted, 1e-5);
}

/// Where a head that is a copy of the table has a bias, too, they are one weight.
TEST(TiedHead, WithABiasIsTrainedAsOneWithItsCopy) {
  ThreadPool pool(1);
  const auto parameters = [&](const Graph& of) {
    return TrainingEngine(of, World::get().options(), options(), pool).parameters();
  };
  Graph graph = fixture_graph("gemma3-optimum18");
  const std::vector<TrainedParameter> plain = parameters(graph);
  const ValueId logits = graph.outputs[0];
  const int64_t v = 512;
  const ValueId product = graph.add_value("", graph.value(logits).type),
                bias = graph.add_value("head.bias", {DType::f32, Dims{Dim(v)}});
  graph.value(bias).constant = std::make_shared<Constant>(Constant{"head.bias", Tensor(DType::f32, {v}), {}});
  for (Node& node : graph.nodes) std::replace(node.outputs.begin(), node.outputs.end(), logits, product);
  Node add;
  add.op = "Add";
  add.inputs = {product, bias};
  add.outputs = {logits};
  graph.nodes.push_back(add);
  const std::vector<TrainedParameter> biased = parameters(graph);
  ASSERT_EQ(biased.size(), plain.size() + 1);
  const auto copies = [](const std::vector<TrainedParameter>& all) {
    return std::count_if(all.begin(), all.end(), [](const TrainedParameter& one) { return !one.copies.empty(); });
  };
  EXPECT_EQ(copies(plain), 1) << "the file holds the table twice";
  EXPECT_EQ(copies(biased), 1);
}

}  // namespace
}  // namespace plait::test

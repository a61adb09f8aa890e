// Pass stage: where a graph is cut, what crosses, and which cuts are refused.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "core/passes/stage/stage.h"
#include "tests/unit/passes/staged_graph.h"

namespace plait::test {
namespace {

std::vector<std::pair<int64_t, int64_t>> crosses_of(const Graph& graph) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const Node& node : graph.nodes)
    if (node.op == "plait.Cross") out.emplace_back(node.attributes.integer("from"), node.attributes.integer("to"));
  std::sort(out.begin(), out.end());
  return out;
}

/// The stages of a parameter's States, by key, of those that several stages read. Each has a sum of its own.
std::map<std::string, std::vector<int32_t>> shared_states(const Graph& graph) {
  std::map<std::string, std::vector<int32_t>> out;
  for (const Node& node : graph.nodes)
    if (node.op == "plait.State") out[node.attributes.string("key", "")].push_back(node.stage);
  std::erase_if(out, [](const auto& one) { return one.second.size() == 1 || one.first.ends_with(".gradient"); });
  for (auto& [key, stages] : out) std::sort(stages.begin(), stages.end());
  return out;
}

Code code_of(const std::function<void()>& body, std::string& message) {
  try {
    body();
  } catch (const Error& error) {
    message = error.message();
    return error.code();
  }
  return Code::ok;
}

/// `body` is refused, with these words.
void expect_refused(const std::function<void()>& body, const std::vector<std::string>& words) {
  std::string message;
  EXPECT_EQ(code_of(body, message), Code::invalid_argument) << message;
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

TEST(Stage, ActivationsCrossOnceABoundaryAndTheirGradientsBack) {
  for (int stages = 2; stages <= 4; ++stages) {
    SCOPED_TRACE(stages);
    const Staged made = staged("llama-untied-optimum18", {.stages = straight(stages)});
    std::vector<std::pair<int64_t, int64_t>> forward, both;
    for (int i = 0; i + 1 < stages; ++i) {
      forward.emplace_back(i, i + 1);
      both.emplace_back(i, i + 1);
      both.emplace_back(i + 1, i);
    }
    std::sort(both.begin(), both.end());
    EXPECT_EQ(crosses_of(made.after.at("stage")), forward);
    EXPECT_EQ(crosses_of(made.after.at("train")), both);
    EXPECT_EQ(crosses_of(made.whole), both);
    EXPECT_EQ(made.model.edges, chain_edges(stages));
  }
}

TEST(Stage, OneStageIsTheGraphItself) {
  const Staged made = staged("llama-untied-optimum18", {});
  EXPECT_TRUE(crosses_of(made.after.at("train")).empty());
}

TEST(Stage, TiedTablesAreAStateAStage) {
  for (const char* fixture : {"gemma3-standard23", "gpt2-optimum18"}) {
    SCOPED_TRACE(fixture);
    const Staged made = staged(fixture, {.stages = straight(3)});
    const auto shared = shared_states(made.after.at("train"));
    ASSERT_EQ(shared.size(), 1u);
    EXPECT_EQ(shared.begin()->second, (std::vector<int32_t>{0, 2}));
    for (const auto& [key, holders] : made.model.holders)
      EXPECT_EQ(holders.size(), key == shared.begin()->first ? 2u : 1u) << key;
    // Neither the table nor its gradient crosses: one message a boundary each way.
    EXPECT_EQ(crosses_of(made.whole).size(), 4u);
  }
  EXPECT_TRUE(shared_states(staged("llama-untied-optimum18", {.stages = straight(3)}).after.at("train")).empty());
}

TEST(Stage, AdaptersAreOnTheStageThatReadsThem) {
  StagedOptions options{.stages = straight(2)};
  options.stages.layers = {1, 1};
  options.training.lora.rank = 2;
  const Staged made = staged("llama-untied-optimum18", options);
  EXPECT_TRUE(shared_states(made.after.at("train")).empty());
  std::map<std::vector<int32_t>, int> counts;
  for (const auto& [key, holders] : made.model.holders) ++counts[holders];
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[{0}], counts[{1}]);
}

// ---- a graph with a loss of its own: nodes are units ----

constexpr const char* with_skip = R"(input %0 "x" : f32[4, 2]
const %1 "w" = file "w" : f32[2, 2] = 0.5 -0.25 1 2
const %2 "v" = file "v" : f32[2, 2] = 0.5 -0.25 1 2
node "first" : %3 : f32[4, 2] = MatMul(%0, %1)
node "second" : %4 : f32[4, 2] = Tanh(%3)
node "third" : %5 : f32[4, 2] = MatMul(%4, %2)
node "sum" : %6 : f32[4, 2] = Add(%5, %3)
node "loss" : %7 "loss" : f32[] = ReduceMean(%6) keepdims=0
output %7
)";

StagedOptions own_loss(int stages, std::vector<int64_t> nodes = {}) {
  StagedOptions out{.stages = straight(stages)};
  out.training.loss = "loss";
  out.stages.layers = std::move(nodes);
  return out;
}

TEST(Stage, SkipsCrossToTheStageThatReadsThem) {
  const Staged made = staged(parse_graph(with_skip), own_loss(4, {1, 1, 1, 2}));
  EXPECT_EQ(crosses_of(made.after.at("stage")),
            (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {0, 3}, {1, 2}, {2, 3}}));
  EXPECT_EQ(crosses_of(made.whole).size(), 8u);
  EXPECT_EQ(made.model.edges.size(), 4u);
  EXPECT_NE(std::find(made.model.edges.begin(), made.model.edges.end(), StageEdge{0, 3}), made.model.edges.end());
}

TEST(Stage, AValueCrossesOnceToAStageThatReadsItTwice) {
  const Staged made = staged(parse_graph(with_skip), own_loss(2, {1, 4}));
  EXPECT_EQ(crosses_of(made.after.at("stage")), (std::vector<std::pair<int64_t, int64_t>>{{0, 1}}));
}

TEST(Stage, CutsByHand) {
  const Staged made = staged("llama-untied-optimum18", [] {
    StagedOptions out{.stages = straight(3)};
    out.stages.layers = {0, 2, 0};  // the embedding, all layers, the head
    return out;
  }());
  std::map<std::vector<int32_t>, int> counts;
  for (const auto& [key, holders] : made.model.holders) ++counts[holders];
  EXPECT_EQ(counts[{0}], 1);
  EXPECT_EQ(counts[{2}], 2) << "the last norm and the head";
}

TEST(Stage, CutsAsTheFileSpecifies) {
  Graph graph = parse_graph(with_skip);
  StagedOptions options = own_loss(3);
  options.stages.from_file = true;
  for (Node& node : graph.nodes)
    node.stage = node.name == "first" || node.name == "second" ? 0 : node.name == "third" ? 1 : 2;
  EXPECT_EQ(crosses_of(staged(graph, options).after.at("stage")),
            (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {0, 2}, {1, 2}}));
  for (Node& node : graph.nodes) node.stage = node.name == "third" ? 2 : 0;
  expect_refused([&] { staged(graph, options); }, {"stage 2", "after stage 0"});
  for (Node& node : graph.nodes) node.stage = node.name == "loss" ? 1 : 0;
  expect_refused([&] { staged(graph, options); }, {"2 stages", "the schedule 3"});
}

/// The largest work of a rank, and of such cuts the largest bytes, of the best cut, by trying all.
std::pair<double, double> best_of_all(const std::vector<StageUnits::Unit>& units, const std::vector<size_t>& seats,
                                      const std::vector<int64_t>& cut) {
  double work = 0, bytes = 0;
  size_t at = 0;
  for (size_t s = 0; s < cut.size(); ++s) {
    double own_work = 0, own_bytes = 0;
    for (int64_t i = 0; i < cut[s]; ++i, ++at) own_work += units[at].work, own_bytes += units[at].bytes;
    work = std::max(work, own_work / static_cast<double>(seats[s]));
    bytes = std::max(bytes, own_bytes);
  }
  return {work, bytes};
}

std::pair<double, double> brute_force(const std::vector<StageUnits::Unit>& units, const std::vector<size_t>& seats,
                                      std::vector<int64_t> cut = {}, int64_t used = 0) {
  const auto left = static_cast<int64_t>(units.size()) - used;
  const auto stages = static_cast<int64_t>(seats.size() - cut.size());
  if (stages == 1) {
    cut.push_back(left);
    return best_of_all(units, seats, cut);
  }
  std::pair<double, double> best{1e300, 1e300};
  for (int64_t count = 1; count <= left - (stages - 1); ++count) {
    cut.push_back(count);
    best = std::min(best, brute_force(units, seats, cut, used + count));
    cut.pop_back();
  }
  return best;
}

TEST(Balance, IsTheBestCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const size_t stages = 1 + random() % 5, n = stages + random() % 8;
    std::vector<StageUnits::Unit> units;
    for (size_t i = 0; i < n; ++i)  // whole numbers, so that sums are exact and ties are frequent
      units.push_back({static_cast<double>(random() % 12), static_cast<double>(random() % 7)});
    std::vector<size_t> seats;
    for (size_t s = 0; s < stages; ++s) seats.push_back(size_t{1} << random() % 3);
    const std::vector<int64_t> cut = balance(units, seats);
    ASSERT_EQ(cut.size(), stages);
    EXPECT_GE(*std::min_element(cut.begin(), cut.end()), 1);
    EXPECT_EQ(std::accumulate(cut.begin(), cut.end(), int64_t{0}), static_cast<int64_t>(n));
    EXPECT_EQ(best_of_all(units, seats, cut), brute_force(units, seats)) << "round " << round;
  }
}

TEST(Balance, CountsTheHead) {
  // A head with most of the work: all layers are on the first stage.
  const std::vector<StageUnits::Unit> units{{0, 4}, {1, 1}, {1, 1}, {1, 1}, {9, 4}};
  EXPECT_EQ(balance(units, {1, 1}), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(balance(units, {1, 4}), (std::vector<int64_t>{3, 2})) << "four ranks share the head";
}

TEST(Stage, RefusesCutsThatAGraphCannotHave) {
  const auto llama = [](int stages, std::vector<int64_t> layers) {
    StagedOptions out{.stages = straight(stages)};
    out.stages.layers = std::move(layers);
    staged("llama-untied-optimum18", out);
  };
  expect_refused([&] { llama(5, {}); }, {"5 stages", "2 layers"});
  expect_refused([&] { llama(2, {1, 2}); }, {"\"1,2\"", "3 layers", "the model 2"});
  expect_refused([&] { llama(2, {1, 1, 0}); }, {"\"1,1,0\"", "3 stages", "the schedule has 2"});
  expect_refused([&] { llama(3, {1, 0, 1}); }, {"stage 1", "0 layers"});
  expect_refused([&] { staged(parse_graph(with_skip), own_loss(6)); }, {"6 stages", "5 nodes"});
  expect_refused([&] { staged(parse_graph(with_skip), own_loss(2, {0, 5})); }, {"stage 0", "0 nodes"});
}

}  // namespace
}  // namespace plait::test

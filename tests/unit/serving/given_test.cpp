// Rows that stand for tokens. A row that is a token's own embedding gives what that token gives, to the bit: by itself and in company, in
// chunks, after a preemption, over ranks, and in a graph that runs as written.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/generate/engines.h"
#include "core/graph/graft.h"
#include "core/passes/normalize/normalize.h"
#include "tests/unit/serving/requests.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

constexpr int32_t placeholder = 1;

/// A decoder whose embeddings have the name by which hosts give others, and its table.
struct Embedded {
  Graph graph;
  Tensor table;  ///< f32 [v, h]

  /// The file takes embeddings, and the graph that makes them of ids is another: `apart`. Joined they are `graph`.
  Graph decoder, apart;
};

Node& embedding_of(Graph& graph) {
  const ValueId ids = find_interface(graph, World::get().ops).ids;
  for (Node& node : graph.nodes)
    if (node.op == "Gather" && node.inputs[1] == ids) return node;
  throw Error(Code::internal, "the fixture has no embedding");
}

Embedded embedded(const std::string& name) {
  Embedded out;
  Graph whole = fixture_graph(name);
  const Node lookup = embedding_of(whole);
  out.table = materialize(*whole.value(lookup.inputs[0]).constant);
  out.table = materialize({{}, out.table, {{RecipeStep::Kind::cast, {}, DType::f32}}});
  const Dims ids = *whole.value(lookup.inputs[1]).type.dims;
  const Type row{whole.value(lookup.inputs[0]).type.dtype, Dims{ids[0], ids[1], out.table.shape()[1]}};

  out.decoder = whole;
  Value& seam = out.decoder.value(lookup.outputs[0]);
  seam.name = std::string(embeddings_input);
  seam.type = {row.dtype, Dims{ids[0], ids[1], out.decoder.symbol("width")}};  // which the other file has
  std::erase_if(out.decoder.nodes, [&](const Node& node) { return node.outputs == lookup.outputs; });
  const bool read = std::any_of(out.decoder.nodes.begin(), out.decoder.nodes.end(), [&](const Node& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), lookup.inputs[1]) != node.inputs.end();
  });
  if (!read) std::erase(out.decoder.inputs, lookup.inputs[1]);
  out.decoder.inputs.push_back(lookup.outputs[0]);

  out.apart.inputs = {out.apart.add_value(
      "input_ids",
      {whole.value(lookup.inputs[1]).type.dtype, Dims{out.apart.symbol("rows"), out.apart.symbol("columns")}})};
  // Tensors of two files may have one name: here that of another of the decoder's.
  Constant copy = *whole.value(lookup.inputs[0]).constant;
  for (ValueId id = 0; id < whole.value_count(); ++id)
    if (id != lookup.inputs[0] && whole.value(id).constant && !whole.value(id).constant->initializer.empty())
      copy.initializer = whole.value(id).constant->initializer;
  const ValueId table = out.apart.add_constant(copy, "table");
  out.apart.outputs = out.apart.add_node("Gather", {table, out.apart.inputs[0]}).outputs;
  out.apart.value(out.apart.outputs[0]).name = "embeddings";
  out.apart.value(out.apart.outputs[0]).type = {
      row.dtype, Dims{out.apart.symbol("rows"), out.apart.symbol("columns"), out.table.shape()[1]}};

  out.graph = out.decoder;
  graft(out.graph, out.graph.find(embeddings_input), out.apart, 0);
  return out;
}

/// Every third token, and a run of twenty, are told by their rows.
RequestOptions with_rows(RequestOptions request, const Tensor& table) {
  std::vector<float> rows;
  const int64_t size = table.shape()[1];
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (i % 3 != 1 && (i < 12 || i > 32)) continue;
    const float* row = table.as<float>() + request.prompt[i] * size;
    rows.insert(rows.end(), row, row + size);
    request.prompt[i] = placeholder;
  }
  request.input_rows = Tensor::of<float>(DType::f32, {static_cast<int64_t>(rows.size()) / size, size}, rows);
  request.input_tokens = {placeholder, 2};
  return request;
}

std::vector<RequestOptions> requests() {
  std::vector<RequestOptions> out;
  const size_t lengths[] = {2, 50, 7, 33, 40};
  for (uint32_t i = 0; i < 5; ++i) {
    RequestOptions one;
    one.prompt = prompt(lengths[i], 40 + i);
    one.max_tokens = 6 + 2 * i;
    one.sampling.top_logprobs = 1;
    one.sampling.temperature = i % 2 ? 0.9 : 0;
    one.sampling.seed = 7 + i;
    if (i == 3) one.samples = 3;
    out.push_back(std::move(one));
  }
  return out;
}

std::unique_ptr<Scheduler> scheduler_of(const Graph& graph, const EngineOptions& options = small_engine(),
                                        const char* mesh = "", std::vector<std::string> seeds = {}) {
  CompileOptions compile = World::get().options(DType::f32);
  compile.mesh = Mesh::parse(mesh);
  compile.seeds = std::move(seeds);
  return std::make_unique<Scheduler>(make_engine(graph, compile, options), TokenizerFuture(), SchedulerOptions());
}

std::vector<Answer> one_by_one(const Graph& graph, const std::vector<RequestOptions>& given) {
  std::vector<Answer> out;
  auto one = scheduler_of(graph);
  for (const RequestOptions& request : given) out.push_back(collect(*one->submit(request)));
  return out;
}

std::vector<Answer> together(Scheduler& scheduler, const std::vector<RequestOptions>& given) {
  std::vector<std::shared_ptr<Request>> running;
  for (const RequestOptions& request : given) running.push_back(scheduler.submit(request));
  std::vector<Answer> out;
  for (auto& request : running) out.push_back(collect(*request));
  return out;
}

std::vector<RequestOptions> all_with_rows(const Tensor& table) {
  std::vector<RequestOptions> out;
  for (const RequestOptions& request : requests()) out.push_back(with_rows(request, table));
  return out;
}

class Given : public testing::TestWithParam<const char*> {};

TEST_P(Given, RowsAreLikeTheirTokens) {
  const Embedded model = embedded(GetParam());
  const std::vector<Answer> expected = one_by_one(fixture_graph(GetParam()), requests());
  EXPECT_EQ(one_by_one(model.graph, requests()), expected) << "joined with the graph of its embeddings";
  EXPECT_EQ(one_by_one(model.graph, all_with_rows(model.table)), expected);
  std::vector<RequestOptions> mixed = all_with_rows(model.table);
  for (RequestOptions& request : requests()) mixed.push_back(std::move(request));
  auto one = scheduler_of(model.graph);
  std::vector<Answer> got = together(*one, mixed);
  EXPECT_EQ(std::vector<Answer>(got.begin(), got.begin() + 5), expected) << "in company";
  EXPECT_EQ(std::vector<Answer>(got.begin() + 5, got.end()), expected) << "in company of rows";
}

TEST_P(Given, GraphsThatRunAsWrittenTakeThem) {
  const Embedded model = embedded(GetParam());
  const auto answers = [&](const RequestOptions& request) {
    Scheduler one(make_plain_engine(model.graph, World::get().options(), small_engine(), nullptr), TokenizerFuture(),
                  SchedulerOptions());
    return collect(*one.submit(request));
  };
  const RequestOptions request = requests()[1];
  EXPECT_EQ(answers(with_rows(request, model.table)), answers(request));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Given,
                         testing::Values("llama-standard23", "gemma3-optimum18", "qwen2-optimum18", "qwen3-dynamo23",
                                         "llama-standard23-f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GivenRows, PreemptionChangesNothing) {
  const Embedded model = embedded("llama-standard23");
  const std::vector<RequestOptions> given = all_with_rows(model.table);
  const std::vector<Answer> expected = one_by_one(model.graph, given);
  EngineOptions options = small_engine();
  options.cache_bytes =
      recognise(model.graph, World::get().options(DType::f32)).pools[0].page_bytes(16, DType::f32) * 6;
  auto one = scheduler_of(model.graph, options);
  for (int tries = 0; tries < 50 && one->stats().preempted == 0; ++tries) EXPECT_EQ(together(*one, given), expected);
  EXPECT_GT(one->stats().preempted, 0);
}

TEST(GivenRows, RanksAgree) {
  const Embedded model = embedded("llama-standard23");
  std::vector<RequestOptions> given = all_with_rows(model.table);
  for (RequestOptions& request : given) request.sampling.temperature = 0;
  std::vector<RequestOptions> plain = requests();
  for (RequestOptions& request : plain) request.sampling.temperature = 0;
  for (const auto& [mesh, seeds] : std::vector<std::pair<const char*, std::vector<std::string>>>{
           {"tensor=2", {}}, {"tensor=2", {"sequence"}}, {"data=2", {}}, {"pipeline=2", {}}}) {
    EngineOptions options = small_engine();
    options.threads = 1;
    auto one = scheduler_of(model.graph, options, mesh, seeds);
    std::vector<Answer> expected = together(*one, plain), got = together(*one, given);
    EXPECT_EQ(got, expected) << mesh;
    const std::vector<Answer> single = one_by_one(model.graph, given);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].tokens, single[i].tokens) << mesh << ", request " << i;
  }
}

TEST(GivenRows, ConversationsGoOnWithMore) {
  const Embedded model = embedded("llama-standard23");
  const auto talk = [&](bool rows) {
    auto one = scheduler_of(model.graph);
    RequestOptions first = requests()[1], next = requests()[4];
    first.keep = true;
    auto begun = one->submit(rows ? with_rows(first, model.table) : first);
    std::vector<Answer> out{collect(*begun)};
    next.parent = begun->conversation();
    out.push_back(collect(*one->submit(rows ? with_rows(next, model.table) : next)));
    auto other = scheduler_of(model.graph);
    next.parent = other->restore(one->save(*begun->conversation()));
    const RequestOptions again = rows ? with_rows(next, model.table) : next;
    out.push_back(collect(*other->submit(again)));
    EXPECT_EQ(out[2], out[1]) << "restored elsewhere";
    EXPECT_EQ(collect(*other->submit(again)), out[1]) << "and once more";
    return out;
  };
  EXPECT_EQ(talk(true), talk(false));
}

/// Equal ids with other rows share no pages; samples of one prompt do.
TEST(GivenRows, PagesAreSharedByEqualRowsOnly) {
  const Embedded model = embedded("llama-standard23");
  RequestOptions first = with_rows(requests()[1], model.table), other = first;
  std::vector<float> rows(first.input_rows.as<float>(), first.input_rows.as<float>() + first.input_rows.elements());
  std::reverse(rows.begin(), rows.end());
  other.input_rows = Tensor::of<float>(DType::f32, first.input_rows.shape(), rows);
  const std::vector<Answer> expected{one_by_one(model.graph, {first})[0], one_by_one(model.graph, {other})[0]};
  EXPECT_NE(expected[0], expected[1]);
  auto one = scheduler_of(model.graph);
  EXPECT_EQ(together(*one, {first, other}), expected);
  EXPECT_EQ(one->stats().engine.prefix_hits, 0);
}

TEST(GivenRows, PenaltiesAreOfTokensOnly) {
  const Embedded model = embedded("llama-standard23");
  RequestOptions request = with_rows(requests()[2], model.table);
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 1.5;
  EXPECT_EQ(collect(*scheduler_of(model.graph)->submit(request)).tokens[0].size(), 10u);
}

void expect_refused(Scheduler& scheduler, const RequestOptions& request, Code code, const std::string& what) {
  try {
    scheduler.submit(request);
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(std::string(error.message()).find(what), std::string::npos) << error.message();
  }
}

TEST(GivenRows, WrongOnesAreRefused) {
  const Embedded model = embedded("llama-standard23");
  auto one = scheduler_of(model.graph);
  RequestOptions request = with_rows(requests()[1], model.table);
  RequestOptions wrong = request;
  wrong.prompt.push_back(placeholder);
  expect_refused(*one, wrong, Code::invalid_argument, "rows of embeddings to stand for them");
  wrong = request;
  wrong.input_tokens = {};
  expect_refused(*one, wrong, Code::invalid_argument, "0 tokens of id none");
  wrong = request;
  wrong.input_rows = Tensor(DType::f32, {3, model.table.shape()[1] + 1});
  expect_refused(*one, wrong, Code::invalid_argument, "expected f32[n, ");
  wrong = request;
  wrong.prompt[0] = -1;
  expect_refused(*one, wrong, Code::invalid_argument, "token id -1 is out of range");
  auto tokens_only = scheduler_of(fixture_graph("llama-standard23"));
  expect_refused(*tokens_only, request, Code::unsupported, "takes tokens only");
  // A row may stand for an id that the vocabulary does not have.
  RequestOptions beyond = request;
  std::replace(beyond.prompt.begin(), beyond.prompt.end(), placeholder, int32_t{1} << 20);
  beyond.input_tokens = {1 << 20};
  EXPECT_EQ(collect(*one->submit(beyond)), collect(*one->submit(request)));
}

TEST(GivenRows, EmbeddingsOfAnotherSizeAreRefused) {
  Embedded model = embedded("llama-standard23");
  const ValueId seam = model.decoder.find(embeddings_input);
  model.decoder.value(seam).type.dims->back() = Dim(model.table.shape()[1] + 1);
  EXPECT_THROW(graft(model.decoder, seam, model.apart, 0), Error);
}

TEST(GivenRows, DecodersWithoutTheirEmbeddingsSayWhatIsMissing) {
  const Decoder found = recognise(embedded("gemma3-optimum18").decoder, World::get().options());
  EXPECT_FALSE(found.recognised);
  EXPECT_NE(found.why_not.find("embed_tokens.onnx"), std::string::npos) << found.why_not;
}

TEST(GivenRows, IdsOfThoseInUseAreNotGivenOutAgain) {
  auto numbers = std::make_shared<GivenNumbers>(10);
  const auto take = [&](int64_t rows) { return numbers->number(Tensor(DType::f32, {rows, 2})); };
  auto first = take(4), second = take(3);
  EXPECT_EQ(first->id(0), -1);
  EXPECT_EQ(second->id(2), -7);
  EXPECT_EQ(first->row(-5), nullptr);
  EXPECT_NE(row_of(std::vector<std::shared_ptr<const GivenRows>>{first, second}, -7), nullptr);
  EXPECT_FALSE(numbers->take_wrapped());
  first.reset();
  auto third = take(4);  // 7, 8, 9 do not suffice
  EXPECT_EQ(third->id(0), -1);
  EXPECT_TRUE(numbers->take_wrapped());
  EXPECT_FALSE(numbers->take_wrapped());
  second.reset();  // pages that it left may still be found
  auto fourth = take(3);
  EXPECT_EQ(fourth->id(0), -8);
  auto fifth = take(3);
  EXPECT_EQ(fifth->id(0), -5);
  EXPECT_TRUE(numbers->take_wrapped());
  EXPECT_THROW(take(1), Error);
}

TEST(GivenRows, ForgottenPagesAreNotFound) {
  auto engine = make_engine(fixture_graph("llama-standard23"), World::get().options(), small_engine());
  const std::vector<int32_t> ids = prompt(40, 3);
  const auto run = [&] {
    auto sequence = engine->open(ids);
    const int64_t found = sequence->length();
    while (sequence->length() < 40) {
      const auto part = std::span(ids)
                            .subspan(static_cast<size_t>(sequence->length()))
                            .first(std::min<size_t>(8, 40 - static_cast<size_t>(sequence->length())));
      EXPECT_TRUE(engine->reserve(*sequence, static_cast<int64_t>(part.size())));
      Feed feed{.sequence = sequence.get(), .tokens = part};
      engine->step({&feed, 1});
    }
    return found;
  };
  const int64_t free = engine->stats().pages_free;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run(), 32);
  engine->forget_pages();
  EXPECT_EQ(engine->stats().pages_free, free);
  EXPECT_EQ(run(), 0);
  auto held = engine->open(ids);  // its pages are in use, and then free
  EXPECT_EQ(held->length(), 32);
  engine->forget_pages();
  held.reset();
  EXPECT_EQ(engine->stats().pages_free, free);
}

}  // namespace
}  // namespace plait::test

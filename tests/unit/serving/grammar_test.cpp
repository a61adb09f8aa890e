// Requests with a grammar: what they give follows it, and depends neither on company, nor on preemption, the mesh, or whether
// determined tokens are fed together.
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "core/text/constraint.h"
#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

constexpr const char* grammar_model = "gemma3-standard23";
constexpr const char* person =
    R"({"type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
  "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                 "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}}})";

std::shared_ptr<const Tokenizer> grammar_tokenizer() {
  static const auto loaded =
      std::make_shared<const Tokenizer>(Tokenizer::load(std::string(PLAIT_FIXTURES "/") + grammar_model));
  return loaded;
}

TokenizerFuture loaded_tokenizer() {
  std::promise<std::shared_ptr<const Tokenizer>> promise;
  promise.set_value(grammar_tokenizer());
  return promise.get_future().share();
}

std::unique_ptr<Scheduler> scheduler_on(const std::string& mesh, int64_t cache_bytes = 8 << 20) {
  CompileOptions compile = World::get().options(DType::f32);
  compile.mesh = Mesh::parse(mesh);
  EngineOptions options = small_engine();
  options.threads = 1;
  options.cache_bytes = cache_bytes;
  return std::make_unique<Scheduler>(make_engine(fixture_graph(grammar_model), compile, options), loaded_tokenizer(),
                                     SchedulerOptions());
}

std::shared_ptr<const Grammar> grammar(GrammarKind kind, std::string_view text) {
  return Grammar::compile(*grammar_tokenizer(), kind, text);
}

RequestOptions bounded_request(std::shared_ptr<const Grammar> bound, double temperature, uint64_t seed) {
  RequestOptions out;
  std::string text = "the river";  // whole characters: the text of a part of one would come first
  for (uint64_t i = 0; i <= seed % 7; ++i) text += i % 2 ? " and the sea" : " is long";
  out.prompt = grammar_tokenizer()->encode(text, true);
  out.max_tokens = 400;
  out.grammar = std::move(bound);
  out.sampling.temperature = temperature;
  out.sampling.seed = seed;
  out.stop_tokens = {1};
  return out;
}

struct GrammarResult {
  std::vector<int32_t> tokens;
  std::string text;
  FinishReason finish = FinishReason::none;
  bool operator==(const GrammarResult&) const = default;
};

std::map<int, GrammarResult> grammar_results(Request& request) {
  std::map<int, GrammarResult> out;
  while (auto event = request.next(hang)) {
    GrammarResult& own = out[event->sample];
    if (event->has_token) own.tokens.push_back(event->token.id);
    own.text += event->text;
    if (event->finish != FinishReason::none) own.finish = event->finish;
  }
  EXPECT_TRUE(request.finished());
  return out;
}

GrammarResult grammar_result(Request& request) { return grammar_results(request)[0]; }

bool is_person(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.size() != 3) return false;
  if (!json["name"].is_string() || !json["age"].is_number_integer() || !json["tags"].is_array()) return false;
  for (const auto& tag : json["tags"])
    if (tag != "red" && tag != "green") return false;
  return json["age"] >= 0 && json["age"] <= 120 && !json["tags"].empty() && json["tags"].size() <= 3;
}

class GrammarOnMesh : public testing::TestWithParam<const char*> {};

TEST_P(GrammarOnMesh, CompanyPreemptionAndForcedTokensChangeNothing) {
  const auto people = grammar(GrammarKind::json_schema, person);
  const auto words = grammar(GrammarKind::regex, "The answer is ([a-z]{2,8}, )*[a-z]{2,8}\\.");
  const auto options_of = [&](uint64_t i, bool forced) {
    auto out = bounded_request(i % 3 == 2 ? nullptr : i % 3 ? words : people, i % 2 ? 1.5 : 0, i);
    out.max_tokens = 60;
    out.forced_tokens = forced;
    return out;
  };
  constexpr uint64_t count = 9;
  std::vector<GrammarResult> expected;
  {
    const auto one = scheduler_on(GetParam());
    for (uint64_t i = 0; i < count; ++i) expected.push_back(grammar_result(*one->submit(options_of(i, false))));
    EXPECT_GT(one->stats().masks.masks, 0);
  }
  const int64_t page =
      recognise(fixture_graph(grammar_model), World::get().options(DType::f32)).pools[0].page_bytes(16, DType::f32);
  for (const int64_t cache_bytes : {int64_t{8} << 20, page * 40})
    for (const bool forced : {true, false}) {
      const auto many = scheduler_on(GetParam(), cache_bytes);
      std::vector<std::shared_ptr<Request>> requests;
      for (uint64_t i = 0; i < count; ++i) requests.push_back(many->submit(options_of(i, forced)));
      for (uint64_t i = 0; i < count; ++i)
        EXPECT_EQ(grammar_result(*requests[i]), expected[i])
            << i << (forced ? " forced" : "") << " cache " << cache_bytes;
    }
}

TEST_P(GrammarOnMesh, FinishedAnswersFollowTheSchema) {
  const auto one = scheduler_on(GetParam());
  const auto people = grammar(GrammarKind::json_schema, person);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < 24; ++i) {
    auto options = bounded_request(people, 1.5, i);
    options.samples = 1 + static_cast<int32_t>(i % 3);
    options.sampling.repetition_penalty = 1 + 0.1 * static_cast<double>(i % 2);
    requests.push_back(one->submit(std::move(options)));
  }
  int finished = 0;
  std::set<std::string> texts;
  for (const auto& each : requests)
    for (const auto& [sample, own] : grammar_results(*each)) {
      if (own.finish == FinishReason::length) continue;
      ++finished;
      EXPECT_TRUE(is_person(own.text)) << own.text;
      texts.insert(own.text);
    }
  EXPECT_GT(finished, 30);
  EXPECT_GT(texts.size(), 20u);
}

INSTANTIATE_TEST_SUITE_P(Meshes, GrammarOnMesh, testing::Values("", "tensor=2", "data=2"));

TEST(GrammarRequests, GreedyIsTheSameOnAMesh) {
  const auto people = grammar(GrammarKind::json_schema, person);
  const GrammarResult whole = grammar_result(*scheduler_on("")->submit(bounded_request(people, 0, 4)));
  EXPECT_EQ(whole, grammar_result(*scheduler_on("tensor=2")->submit(bounded_request(people, 0, 4))));
}

TEST(GrammarRequests, ForcedTokensTakeFewerSteps) {
  const auto text = grammar(GrammarKind::lark,
                            R"(start: "a long sentence that only the grammar determines " /[ab]/ " and its end")");
  int64_t steps[2];
  GrammarResult outputs[2];
  for (const bool forced : {false, true}) {
    const auto one = scheduler_on("");
    auto options = bounded_request(text, 0, 1);
    options.forced_tokens = forced;
    outputs[forced] = grammar_result(*one->submit(options));
    one->save(*[&] {
      auto kept = bounded_request(nullptr, 0, 1);
      kept.keep = true, kept.max_tokens = 1;
      const auto last = one->submit(kept);
      grammar_result(*last);
      return last->conversation();
    }());
    steps[forced] = one->stats().steps;
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0].finish, FinishReason::stop);
  EXPECT_LT(steps[1] * 2, steps[0]);
}

TEST(GrammarRequests, TheMaskWinsOverBiasAndMinimum) {
  const auto one = scheduler_on("");
  const auto letter = grammar(GrammarKind::choices, R"(["a"])");
  auto options = bounded_request(letter, 0, 1);
  options.forced_tokens = false;
  options.min_tokens = 50;
  for (int32_t id = 0; id < 512; ++id)
    options.sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  const GrammarResult only = grammar_result(*one->submit(options));
  EXPECT_EQ(only.text, "a");
  EXPECT_EQ(only.finish, FinishReason::stop);
}

TEST(GrammarRequests, ALimitOfTokensCutsTheText) {
  const auto one = scheduler_on("");
  auto options = bounded_request(grammar(GrammarKind::json_schema, person), 0, 1);
  options.max_tokens = 3;
  const GrammarResult cut = grammar_result(*one->submit(options));
  EXPECT_EQ(cut.tokens.size(), 3u);
  EXPECT_EQ(cut.finish, FinishReason::length);
}

TEST(GrammarRequests, AHostThatSamplesSeesTheMask) {
  const auto one = scheduler_on("");
  auto options = bounded_request(grammar(GrammarKind::regex, "[ab]c"), 0, 1);
  options.host_sampling = true;
  for (const bool allowed : {true, false}) {
    const auto asked = one->submit(options);
    const auto event = asked->next(hang);
    ASSERT_TRUE(event && !event->logits.empty());
    int32_t finite = -1, hidden = -1;
    for (size_t i = 0; i < event->logits.size(); ++i)
      (std::isfinite(event->logits[i]) ? finite : hidden) = static_cast<int32_t>(i);
    ASSERT_TRUE(finite >= 0 && hidden >= 0);
    asked->push(allowed ? finite : hidden);
    if (allowed) EXPECT_TRUE(asked->next(hang)->has_token);
    else EXPECT_THROW(asked->next(hang), Error);
  }
}

TEST(GrammarRequests, LogProbabilitiesAreTheModels) {
  const auto one = scheduler_on("");
  auto options = bounded_request(grammar(GrammarKind::choices, R"(["yes", "no"])"), 0, 1);
  options.sampling.top_logprobs = 2;
  const Answer answer = collect(*one->submit(options));
  ASSERT_FALSE(answer.logprobs.at(0).empty());
  for (float logprob : answer.logprobs.at(0)) EXPECT_TRUE(std::isfinite(logprob) && logprob <= 0);
}

TEST(GrammarRequests, StatesMayEndWhileTheirMaskIsComputed) {
  const auto people = grammar(GrammarKind::json_schema, person);
  MaskThread masks;
  std::mt19937 random(1);
  std::vector<std::shared_ptr<MaskState>> states;
  int64_t taken = 0;
  for (int round = 0; round < 200; ++round) {
    while (states.size() < 6) states.push_back(std::make_shared<MaskState>(people->start()));
    std::erase_if(states, [&](const std::shared_ptr<MaskState>& state) {
      if (random() % 20 == 0) return true;
      const NextTokens& next = masks.take(state);
      ++taken;
      if (next.ended) return true;
      int32_t id = next.forced.empty() ? -1 : next.forced[0];
      for (size_t word = 0; id < 0 && word < next.mask.size(); ++word)
        if (next.mask[word]) id = static_cast<int32_t>(word * 32) + std::countr_zero(next.mask[word]);
      if (state->constraint.commit(id)) return true;
      masks.order(state);
      return false;
    });
  }
  EXPECT_GE(masks.stats().masks, taken);
  EXPECT_GE(masks.stats().seconds, 0);
}

}  // namespace
}  // namespace plait::test

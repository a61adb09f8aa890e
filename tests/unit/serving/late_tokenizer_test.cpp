// A tokenizer that loads while requests run: tokens do not wait for it, no text is lost, and no end comes too early.
#include <gtest/gtest.h>

#include "serving/scheduler.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;
using TokenizerPointer = std::shared_ptr<const Tokenizer>;

constexpr const char* model_name = "gemma3-standard23";
constexpr int64_t new_tokens = 12;

TokenizerPointer tokenizer() {
  static const auto loaded = std::make_shared<const Tokenizer>(
      Tokenizer::load(std::string(PLAIT_FIXTURES "/") + model_name));
  return loaded;
}

/// A scheduler, and the promise of its tokenizer.
struct Late {
  std::promise<TokenizerPointer> promise;
  Scheduler scheduler;

  explicit Late(SchedulerOptions options = {})
      : scheduler(fixture_engine(model_name), promise.get_future().share(), options) {}
  void arrive() { promise.set_value(tokenizer()); }
};

RequestOptions request() {
  RequestOptions out;
  out.prompt = tokenizer()->encode("the river and the sea", true);
  out.max_tokens = new_tokens;
  return out;
}

struct Seen {
  std::vector<int32_t> tokens;
  std::string text;
  FinishReason finish = FinishReason::none;

  void take(const Event& event) {
    if (event.has_token) tokens.push_back(event.token.id);
    text += event.text;
    if (event.finish != FinishReason::none) finish = event.finish;
  }
};

Seen rest(Request& request, Seen seen = {}) {
  while (auto event = request.next(hang)) seen.take(*event);
  EXPECT_TRUE(request.finished());
  return seen;
}

/// What the request gives when the tokenizer is there from the start.
Seen expected(const RequestOptions& options = request()) {
  Late late;
  late.arrive();
  return rest(*late.scheduler.submit(options));
}

/// As many events as there are tokens to come, all without text.
Seen tokens_alone(Request& request, int64_t count) {
  Seen seen;
  for (int64_t i = 0; i < count; ++i) {
    auto event = request.next(hang);
    EXPECT_TRUE(event && event->has_token && event->text.empty() && event->finish == FinishReason::none);
    if (event) seen.take(*event);
  }
  return seen;
}

TEST(LateTokenizer, TokensDoNotWaitAndTheTextComesWithTheEnd) {
  Seen want = expected();
  EXPECT_FALSE(want.text.empty());
  Late late;
  auto running = late.scheduler.submit(request());
  Seen seen = tokens_alone(*running, new_tokens);
  EXPECT_FALSE(running->next(50ms));
  EXPECT_FALSE(running->finished());
  late.arrive();
  seen = rest(*running, seen);
  EXPECT_EQ(seen.tokens, want.tokens);
  EXPECT_EQ(seen.text, want.text);
  EXPECT_EQ(seen.finish, FinishReason::length);
}

TEST(LateTokenizer, ArrivesInTheMiddle) {
  Seen want = expected();
  Late late;
  RequestOptions options = request();
  options.host_sampling = true;
  auto running = late.scheduler.submit(options);
  Seen seen;
  for (size_t i = 0; i < want.tokens.size(); ++i) {
    auto logits = running->next(hang);
    ASSERT_TRUE(logits && !logits->logits.empty());
    if (i == 5) {
      EXPECT_TRUE(seen.text.empty());
      late.arrive();
    }
    running->push(want.tokens[i]);
    auto token = running->next(hang);
    ASSERT_TRUE(token && token->has_token);
    seen.take(*token);
  }
  EXPECT_EQ(seen.text, want.text);
  EXPECT_EQ(seen.finish, FinishReason::length);
}

TEST(LateTokenizer, TheEndOfTextTokenHasNoText) {
  Seen want = expected();
  RequestOptions options = request();
  options.stop_tokens = {want.tokens[2]};
  Seen short_text = expected(options);
  Late late;
  auto running = late.scheduler.submit(options);
  Seen seen = tokens_alone(*running, static_cast<int64_t>(short_text.tokens.size()));
  late.arrive();
  seen = rest(*running, seen);
  EXPECT_EQ(seen.text, short_text.text);
  EXPECT_EQ(seen.tokens, short_text.tokens);
  EXPECT_EQ(seen.finish, FinishReason::eos);
}

TEST(LateTokenizer, OneThatFailsIsNone) {
  Late late;
  auto running = late.scheduler.submit(request());
  Seen seen = tokens_alone(*running, new_tokens);
  late.promise.set_exception(std::make_exception_ptr(Error(Code::bad_model, "tokenizer.json is damaged")));
  seen = rest(*running, seen);
  EXPECT_EQ(seen.finish, FinishReason::length);
  EXPECT_TRUE(seen.text.empty());
  EXPECT_EQ(rest(*late.scheduler.submit(request())).tokens, seen.tokens);
  RequestOptions stops = request();
  stops.stop_strings = {"sea"};
  EXPECT_THROW(late.scheduler.submit(stops), Error);
}

TEST(LateTokenizer, StopStringsWait) {
  Seen want = expected();
  RequestOptions options = request();
  options.stop_strings = {want.text.substr(want.text.size() / 2, 2)};
  Seen stopped = expected(options);
  EXPECT_EQ(stopped.finish, FinishReason::stop);
  Late late;
  auto submitted = std::async(std::launch::async, [&] { return late.scheduler.submit(options); });
  EXPECT_EQ(submitted.wait_for(50ms), std::future_status::timeout);
  late.arrive();
  EXPECT_EQ(rest(*submitted.get()).text, stopped.text);
}

TEST(LateTokenizer, OnesThatWaitForTheirTextAreInNobodysWay) {
  Late late({256, 1});
  auto first = late.scheduler.submit(request()), second = late.scheduler.submit(request());
  Seen one = tokens_alone(*first, new_tokens), two = tokens_alone(*second, new_tokens);
  EXPECT_EQ(one.tokens, two.tokens);
  RequestOptions score = request();
  score.kind = RequestOptions::Kind::score;
  EXPECT_EQ(rest(*late.scheduler.submit(score)).finish, FinishReason::length);
  first->cancel();
  EXPECT_EQ(rest(*first).finish, FinishReason::cancelled);
  late.arrive();
  EXPECT_EQ(rest(*second, two).text, expected().text);
}

TEST(LateTokenizer, ClosingDoesNotWaitForIt) {
  auto late = std::make_unique<Late>();
  auto running = late->scheduler.submit(request());
  tokens_alone(*running, new_tokens);
  late.reset();
  EXPECT_THROW(running->next(hang), Error);
}

}  // namespace
}  // namespace plait::test

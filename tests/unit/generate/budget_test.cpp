// What a step may take next to weights and cache.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/generate/engines.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

TEST(EngineBudget, HoldsForLogitsAndHiddenStatesTogether) {
  const std::string name = "gemma3-standard23";
  EngineOptions options = small_engine();
  options.memory_bytes = fixture_engine(name)->stats().arena_bytes;  // enough only for logits
  auto engine = fixture_engine(name, options);
  auto sequence = engine->open({});
  ASSERT_TRUE(engine->reserve(*sequence, 3));
  std::vector<int32_t> ids{1, 2, 3};
  Feed feed{sequence.get(), ids, 3, {}, {}};
  try {
    engine->step_hidden({&feed, 1});
    ADD_FAILURE() << "a second arena was taken from elsewhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_NE(error.hint().find("memory_bytes"), std::string::npos);
  }
  options.memory_bytes -= 1;
  EXPECT_THROW(fixture_engine(name, options), Error);
}

/// What a cancelled step would have changed, no sequence has: it continues as if there had been none.
TEST(EngineBudget, ACancelledStepChangesNothing) {
  for (bool raised : {true, false}) {
    SCOPED_TRACE(raised);
    auto engine = raised ? fixture_engine("gemma3-standard23")
                         : make_plain_engine(fixture_graph("gemma3-optimum18"), World::get().options(),
                                             small_engine(), nullptr);
    auto sequence = engine->open({}), other = engine->open({});
    std::vector<int32_t> ids{1, 2, 3};
    Feed feed{sequence.get(), ids, 3, {}, {}};
    engine->budget().cancel();
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(engine->reserve(*sequence, 3));
      try {
        engine->step({&feed, 1});
        ADD_FAILURE() << "it ran";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::cancelled);
      }
      EXPECT_EQ(sequence->length(), 0);
    }
    engine->budget().begin();
    engine->step({&feed, 1});
    std::vector<float> logits(feed.logits.begin(), feed.logits.end());
    EXPECT_EQ(sequence->length(), 3);
    feed.sequence = other.get();
    ASSERT_TRUE(engine->reserve(*other, 3));
    engine->step({&feed, 1});
    EXPECT_EQ(logits, std::vector<float>(feed.logits.begin(), feed.logits.end()));
  }
}

}  // namespace
}  // namespace plait::test

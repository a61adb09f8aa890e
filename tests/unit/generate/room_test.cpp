// What a step may take beside weights and cache.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/unit/models.h"

namespace plait::test {
namespace {

TEST(EngineRoom, HoldsForLogitsAndHiddenStatesTogether) {
  const std::string name = "gemma3-standard23";
  EngineOptions options = small_engine();
  options.memory_bytes = fixture_engine(name)->stats().arena_bytes;  // enough for logits alone, with no more
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

}  // namespace
}  // namespace plait::test

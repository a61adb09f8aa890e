// Pages of a prefix are found by a hash of their tokens and of all before them.
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

/// Three pages of one token, the first id of all: each has an entry of its own, though zeros mix to zero.
TEST(CachedPages, OfEqualTokensAreDistinct) {
  auto engine = fixture_engine("gpt2-optimum18");
  const int64_t page = engine->options().page_tokens;
  const std::vector<int32_t> ids(static_cast<size_t>(3 * page), 0);
  const std::vector<float> expected = logits(*engine, ids);
  auto sequence = engine->open(ids);
  ASSERT_EQ(sequence->length(), 2 * page);  // at least one token is left to compute
  const std::vector<float> rest = feed(*engine, *sequence, std::span(ids).subspan(static_cast<size_t>(2 * page)));
  const std::vector<float> last(expected.end() - static_cast<std::ptrdiff_t>(rest.size()), expected.end());
  EXPECT_EQ(rest, last);
}

}  // namespace
}  // namespace plait::test

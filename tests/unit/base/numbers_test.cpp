// Numbers made of their arguments: counter-based random numbers, checksums.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/counter_random.h"
#include "core/base/crc32c.h"

namespace plait {
namespace {

TEST(CounterRandom, IsKeyedByAllArguments) {
  constexpr auto use = RandomUse::sampling;
  // The known answer of Philox4x32-10 for a zero counter and key begins with 6627e8d5 e169c58d (Random123's test vectors).
  EXPECT_EQ(counter_bits(use, 0, 0, 0), 0x6627e8d5e169c58du);
  EXPECT_EQ(counter_uniform(use, 0, 0, 0), static_cast<double>((0x6627e8d5e169c58dull >> 11)) * 0x1p-53);
  std::set<uint64_t> seen;
  for (auto other : {use, RandomUse::sample_order})
    for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
      for (uint32_t stream : {0, 1})
        for (uint64_t position : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
          seen.insert(counter_bits(other, seed, stream, position));
  EXPECT_EQ(seen.size(), 2u * 3 * 2 * 3);
}

TEST(CounterRandom, StaysBelowItsBoundAndReachesAll) {
  constexpr int draws = 60000, bound = 6;
  std::vector<int> counts(bound);
  for (uint64_t i = 0; i < draws; ++i) ++counts.at(counter_below(RandomUse::sample_order, 5, 0, i, bound));
  // Six standard deviations of a binomial.
  for (int count : counts)
    EXPECT_NEAR(count, draws / bound, 6 * std::sqrt(draws * (1.0 / bound) * (1 - 1.0 / bound)));
  EXPECT_EQ(counter_below(RandomUse::sample_order, 5, 0, 0, 1), 0u);
}

TEST(Crc32c, GivesTheKnownAnswers) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  // RFC 3720, B.4: 32 bytes of zeros, and 0 to 31.
  std::vector<std::byte> zeros(32), rising(32);
  for (size_t i = 0; i < 32; ++i) rising[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAu);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
}

TEST(Crc32c, GoesOnWhereItStoppedAndSeesEveryBit) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(97);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const uint32_t whole = crc32c(bytes);
  const std::span<const std::byte> all(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut)
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << cut;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_NE(crc32c(bytes), whole) << bit;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

}  // namespace
}  // namespace plait

#include "core/base/counter_random.h"

#include <array>

namespace plait {
namespace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

}  // namespace

uint64_t counter_bits(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position) {
  auto bits = philox(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, static_cast<uint32_t>(use)},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{bits[0]} << 32 | bits[1];
}

double counter_uniform(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position) {
  return static_cast<double>(counter_bits(use, seed, stream, position) >> 11) * 0x1p-53;
}

uint64_t counter_below(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position, uint64_t bound) {
  using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{counter_bits(use, seed, stream, position)} * bound >> 64);
}

}  // namespace plait

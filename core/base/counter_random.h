#pragma once
// Counter-based random numbers: functions of their arguments, equal on all machines, stateless.
#include <algorithm>
#include <cstdint>

namespace plait {

/// The use of a number: uses have independent streams.
enum class RandomUse : uint32_t { sampling = 0, sample_order = 1, graph_op = 2 };

/// 64 random bits: Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011) keyed by the
/// seed, counted by (position, stream, use).
uint64_t counter_bits(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position);
/// Uniform in [0, 1).
double counter_uniform(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position);
/// Uniform in [0, bound), with bias below 2^-64 * bound; bound > 0.
uint64_t counter_below(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position, uint64_t bound);

/// 64 pseudo-random bits for uses where Philox is too slow, and for hashes of sequences (`key`: that of the preceding
/// elements): splitmix64's finaliser applied twice (Steele et al. 2014).
constexpr uint64_t mixed_bits(uint64_t key, uint64_t counter) {
  uint64_t out = key + counter * 0x9E3779B97F4A7C15u;
  for (int round = 0; round < 2; ++round) {
    out = (out ^ (out >> 30)) * 0xBF58476D1CE4E5B9u;
    out = (out ^ (out >> 27)) * 0x94D049BB133111EBu;
    out ^= out >> 31;
  }
  return out;
}

/// Dropout (Srivastava et al. 2014): a function of (key of the token, module, feature). Kept features are multiplied
/// by 1 / (1 - rate), with the rate a multiple of 2^-16.
class Dropout {
 public:
  Dropout() = default;
  Dropout(double rate, uint64_t module) : dropped_(static_cast<uint32_t>(rate * steps + 0.5)), module_(module) {}

  /// y = dropout(x) for features [first, first + count) of a token; a token of key -1 is unchanged. y may be x.
  template <class N>
  void apply(const N* x, int64_t key, int64_t first, int64_t count, N* y) const {
    constexpr int64_t together = 4;  // draws of 64 bits
    const N scale = static_cast<N>(steps / (steps - dropped_));
    const uint64_t row = mixed_bits(static_cast<uint64_t>(key), module_);
    for (int64_t j = 0; j < count;) {
      const int64_t feature = first + j, group = feature / together;
      uint64_t bits = mixed_bits(row, static_cast<uint64_t>(group)) >> (16 * (feature % together));
      for (const int64_t end = std::min(count, (group + 1) * together - first); j < end; ++j, bits >>= 16)
        y[j] = key < 0 ? x[j] : (bits & 0xFFFF) < dropped_ ? N{0} : x[j] * scale;
    }
  }

 private:
  static constexpr double steps = 65536;
  uint32_t dropped_ = 0;
  uint64_t module_ = 0;
};

}  // namespace plait

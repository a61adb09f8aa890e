#pragma once
// Random numbers that depend on their arguments alone: the same on every machine, in any order, with no state to save.
#include <cstdint>

namespace plait {

/// What numbers are for: uses do not share any.
enum class RandomUse : uint32_t { sampling = 0, sample_order = 1 };

/// 64 random bits: Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011) keyed by the seed,
/// counted by (position, stream, use).
uint64_t counter_bits(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position);
/// Uniform in [0, 1).
double counter_uniform(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position);
/// Uniform in [0, bound), but for 2^-64 * bound; bound > 0.
uint64_t counter_below(RandomUse use, uint64_t seed, uint32_t stream, uint64_t position, uint64_t bound);

}  // namespace plait

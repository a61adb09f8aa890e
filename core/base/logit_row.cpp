#include "core/base/logit_row.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/base/token_weight.h"

// Before a function: it is compiled for AVX-512 and AVX2 as well, and the processor's is taken when the library is loaded. Sanitizers do
// not run as early. What is computed is the same in all: plait_base is compiled without contraction.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLAIT_FOR_PROCESSORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLAIT_FOR_PROCESSORS
#endif

namespace plait {
namespace {

constexpr size_t block = 256, lanes = 16;
/// How far ahead logits are asked for: a step's rows lie in memory, and what a processor asks for by itself comes half as fast.
constexpr size_t ahead = 1024;

using Floats = float __attribute__((vector_size(4 * lanes)));
using Ints = int32_t __attribute__((vector_size(4 * lanes)));
using HalfWords = uint32_t __attribute__((vector_size(2 * lanes)));
using Longs = uint64_t __attribute__((vector_size(4 * lanes)));  // of half the lanes

struct Maximum {
  float value = LogitRow::lowest;
  bool has_nan = false;
};

PLAIT_FOR_PROCESSORS Maximum maximum_of_block(const float* in) {
  Floats most = Floats{} + LogitRow::lowest;
  Ints unordered = {};
  for (size_t i = 0; i < block; i += lanes) {
    __builtin_prefetch(in + i + ahead);
    Floats x;
    std::memcpy(&x, in + i, sizeof x);
    most = x > most ? x : most;
    unordered |= x != x;
  }
  Maximum out;
  for (size_t i = 0; i < lanes; ++i) {
    out.value = most[i] > out.value ? most[i] : out.value;
    out.has_nan |= unordered[i] != 0;
  }
  return out;
}

/// power_weight in lanes, 0 of logits below `least`.
PLAIT_FOR_PROCESSORS LogitRow::Sum sum_of_block(const float* in, float largest, float per_unit, float least) {
  Longs weights = {};
  Ints count = {};
  for (size_t i = 0; i < block; i += lanes) {
    Floats x;
    std::memcpy(&x, in + i, sizeof x);
    const Ints counts = x >= least;
    const Floats distance = (counts ? largest - x : Floats{}) * per_unit;
    const Ints whole = __builtin_convertvector(distance, Ints);
    const Floats part = distance - __builtin_convertvector(whole, Floats);
    Floats power = Floats{} + weight_terms[6];
    for (int k = 5; k >= 0; --k) power = power * part + weight_terms[k];
    const Ints digits = __builtin_convertvector(power * (1 << weight_digits), Ints) & counts;
    count -= counts;
    HalfWords digits_of[2], whole_of[2];
    std::memcpy(digits_of, &digits, sizeof digits_of);
    std::memcpy(whole_of, &whole, sizeof whole_of);
    for (int half = 0; half < 2; ++half)
      weights += __builtin_convertvector(digits_of[half], Longs) << (weight_bits - weight_digits) >>
                 __builtin_convertvector(whole_of[half], Longs);
  }
  LogitRow::Sum out;
  for (size_t i = 0; i < lanes / 2; ++i) out.weight += weights[i];
  for (size_t i = 0; i < lanes; ++i) out.count += static_cast<uint64_t>(count[i]);
  return out;
}

}  // namespace

LogitRow::LogitRow(std::span<const float> logits) : logits_(logits), maxima_((logits.size() + block - 1) / block) {
  for (size_t i = 0; i < maxima_.size(); ++i) {
    float own[block];
    const Maximum of_block = maximum_of_block(block_at(i, own));
    maxima_[i] = of_block.value;
    has_nan_ |= of_block.has_nan;
    largest_ = std::max(largest_, of_block.value);
  }
}

/// A block's logits; the last are copied, as a whole block.
const float* LogitRow::block_at(size_t index, float* own) const {
  const std::span<const float> rest = logits_.subspan(index * block);
  if (rest.size() >= block) return rest.data();
  std::fill(std::copy(rest.begin(), rest.end(), own), own + block, lowest);
  return own;
}

int32_t LogitRow::largest_id() const {
  auto at = static_cast<size_t>(std::find(maxima_.begin(), maxima_.end(), largest_) - maxima_.begin()) * block;
  while (logits_[at] != largest_) ++at;
  return static_cast<int32_t>(at);
}

LogitRow::Sum LogitRow::sum(double per_unit, float least) const {
  Sum out;
  for (size_t i = 0; i < maxima_.size(); ++i) {
    if (maxima_[i] < least) continue;
    float own[block];
    const Sum of_block = sum_of_block(block_at(i, own), largest_, static_cast<float>(per_unit), least);
    out.weight += of_block.weight;
    out.count += of_block.count;
  }
  return out;
}

std::vector<RankedToken> LogitRow::between(float least, float limit) const {
  std::vector<RankedToken> out;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (i % block == 0 && maxima_[i / block] < least) {
      i += block - 1;
      continue;
    }
    const float logit = logits_[i];
    if (logit >= least && logit < limit) out.push_back({logit, static_cast<int32_t>(i)});
  }
  return out;
}

/// Where there are more blocks than are asked for, as many have a largest logit: no more are looked at.
std::vector<RankedToken> LogitRow::first(size_t count, float least) const {
  if (count > 0 && count <= maxima_.size()) {
    std::vector<float> maxima = maxima_;
    const auto last = maxima.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(maxima.begin(), last, maxima.end(), std::greater<>());
    least = std::max(least, *last);
  }
  std::vector<RankedToken> out = between(least, std::numeric_limits<float>::infinity());
  if (count < out.size()) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end());
    out.resize(count);
  }
  return out;
}

size_t LogitRow::count_above(float logit) const {
  size_t out = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (i % block == 0 && maxima_[i / block] <= logit) i += block - 1;
    else out += logits_[i] > logit;
  }
  return out;
}

}  // namespace plait

// Chooses tokens from logits. A candidate's place in the order is a number of 64 bits, and what is searched are places: the last of
// top-k and of the nucleus, and the one of the random number. A search goes over the number's digits from the first on, with a
// histogram of the weights of those that have the digits found so far.
#include "kernels/cuda/kernels/sample.h"

#include "core/base/token_weight.h"
#include "kernels/cuda/kernels/device.h"
#include "kernels/cuda/kernels/order.h"

namespace plait::cuda {
namespace {

constexpr int digit_bits = 8, digits = 1 << digit_bits, group_digits = 16, groups = digits / group_digits;
constexpr uint64_t nan_order = 0, no_order = ~uint64_t{0};

/// Ascending: by descending logit, then by id; any NaN is first.
PLAIT_DEVICE uint64_t order_of(float logit, int64_t id) {
  return logit != logit ? nan_order : static_cast<uint64_t>(descending_bits(logit)) << 32 | static_cast<uint32_t>(id);
}
PLAIT_DEVICE float logit_of(uint64_t order) { return of_descending_bits(static_cast<uint32_t>(order >> 32)); }

/// A row of logits, with its edits.
struct LogitRow {
  const float* logits;
  const int32_t* edits;
  const uint32_t* marks;  ///< a bit for each token that has an edit
  int64_t row, v, edit_count;
  double repetition;

  PLAIT_DEVICE const int32_t* edit(int64_t k) const {
    const int32_t* const at = edits + k * edit_words;
    return at[0] == row && at[1] >= 0 && at[1] < v ? at + 1 : nullptr;
  }
  /// Calls each(logit, id); all threads together go over the whole row.
  template <class Each>
  PLAIT_DEVICE void visit(const Each& each) const {
    for (int64_t i = threadIdx.x; i < v; i += sample_threads)
      if (!(marks[i / 32] >> (i % 32) & 1)) each(logits[i], i);
    for (int64_t k = threadIdx.x; k < edit_count; k += sample_threads)
      if (const int32_t* const at = edit(k)) {
        const LogitEdit own{at[0], at[1], __uint_as_float(static_cast<uint32_t>(at[2])),
                            __uint_as_float(static_cast<uint32_t>(at[3]))};
        each(edited_logit(logits[own.id], own, repetition), own.id);
      }
  }
};

PLAIT_DEVICE void mark_edits(const LogitRow& row, uint32_t* marks) {
  for (int64_t i = threadIdx.x; i < (row.v + 31) / 32; i += sample_threads) marks[i] = 0;
  __syncthreads();
  for (int64_t k = threadIdx.x; k < row.edit_count; k += sample_threads)
    if (const int32_t* const at = row.edit(k)) atomicAdd(marks + at[0] / 32, 1U << (at[0] % 32));  // one edit a token
  __syncthreads();
}

/// The least of all threads' numbers, on all of them.
PLAIT_DEVICE uint64_t block_min(uint64_t value) {
  PLAIT_SHARED(uint64_t, least, sample_threads / 32);
  value = warp_min(value);
  if (threadIdx.x % 32 == 0) least[threadIdx.x / 32] = value;
  __syncthreads();
  uint64_t out = least[0];
#pragma unroll
  for (int i = 1; i < sample_threads / 32; ++i)
    if (least[i] < out) out = least[i];
  __syncthreads();
  return out;
}

/// Shared by a block.
struct Histogram {
  unsigned long long weights[digits], counts[digits];
};
struct Search {
  uint64_t prefix;  ///< digits found so far
  uint64_t place;   ///< among those that have them
  uint64_t count;   ///< of those
  uint64_t order;
};

/// Candidates up to `last`.
struct Candidates {
  const LogitRow& row;
  const ChoiceSettings& settings;
  float largest;
  uint64_t last;

  /// Calls each(logit, order) for those whose digits before `shift` are `prefix`.
  template <class Each>
  PLAIT_DEVICE void visit(int shift, uint64_t prefix, const Each& each) const {
    row.visit([&](float logit, int64_t id) {
      const uint64_t order = order_of(logit, id);
      if (order <= last && (shift == 64 || order >> shift == prefix) && is_candidate(largest, logit, settings))
        each(logit, order);
    });
  }
};

/// Adds weights and numbers of candidates by their next digit. A thread adds what follows each other with one digit at once: most of
/// the first digits are the same.
PLAIT_DEVICE void add_digits(const Candidates& all, int shift, uint64_t prefix, bool weighted, Histogram* histogram) {
  for (int i = threadIdx.x; i < digits; i += sample_threads) histogram->weights[i] = histogram->counts[i] = 0;
  __syncthreads();
  unsigned long long weight = 0, count = 0;
  int digit = 0;
  const auto flush = [&] {
    if (count) atomicAdd(&histogram->weights[digit], weight), atomicAdd(&histogram->counts[digit], count);
    weight = count = 0;
  };
  all.visit(shift, prefix, [&](float logit, uint64_t order) {
    const int own = static_cast<int>(order >> (shift - digit_bits)) & (digits - 1);
    if (own != digit) flush();
    digit = own, ++count;
    weight += weighted ? token_weight(all.largest, logit, all.settings) : 1;
  });
  flush();
  __syncthreads();
}

/// The first candidate, in order, whose weight, with those before it, is more than place(sum of all). `weighted` false: a weight is 1.
template <class Place>
PLAIT_DEVICE uint64_t find(const Candidates& all, bool weighted, const Place& place) {
  PLAIT_SHARED(Histogram, histogram, 1);
  PLAIT_SHARED(unsigned long long, of_group, groups);
  PLAIT_SHARED(Search, search, 1);
  uint64_t prefix = 0;
  int shift = 64;
  do {
    add_digits(all, shift, prefix, weighted, histogram);
    if (threadIdx.x < groups) {
      unsigned long long sum = 0;
      for (int i = 0; i < group_digits; ++i) sum += histogram->weights[threadIdx.x * group_digits + i];
      of_group[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t rest = search->place;
      if (shift == 64) {
        uint64_t sum = 0;
        for (int i = 0; i < groups; ++i) sum += of_group[i];
        rest = place(sum);
      }
      int digit = 0;
      for (; digit < digits - group_digits && rest >= of_group[digit / group_digits]; digit += group_digits)
        rest -= of_group[digit / group_digits];
      for (; digit < digits - 1 && rest >= histogram->weights[digit]; ++digit) rest -= histogram->weights[digit];
      *search = {prefix << digit_bits | static_cast<uint64_t>(digit), rest, histogram->counts[digit], 0};
    }
    __syncthreads();
    prefix = search->prefix;
    shift -= digit_bits;
  } while (shift && search->count > 1);
  all.visit(shift, prefix, [&](float, uint64_t order) { search->order = order; });
  __syncthreads();
  const uint64_t out = search->order;
  __syncthreads();  // the next search is in the same place
  return out;
}

PLAIT_DEVICE int32_t choose(const LogitRow& row, const ChoiceSettings& settings) {
  uint64_t best = no_order;
  row.visit([&](float logit, int64_t id) {
    const uint64_t order = order_of(logit, id);
    if (order < best) best = order;
  });
  best = block_min(best);
  const float largest = logit_of(best);
  if (best == nan_order) return nan_in_logits;
  if (largest == INFINITY || largest == -INFINITY) return no_finite_logit;
  if (settings.per_unit == 0) return static_cast<int32_t>(best);
  Candidates all{row, settings, largest, no_order};
  if (settings.top_k > 0)
    all.last = find(all, false, [&](uint64_t count) {
      const auto k = static_cast<uint64_t>(settings.top_k);
      return (k < count ? k : count) - 1;
    });
  if (settings.top_p < 1) all.last = find(all, true, [&](uint64_t sum) { return nucleus_end(settings.top_p, sum); });
  return static_cast<int32_t>(find(all, true, [&](uint64_t sum) { return place_of(settings.uniform, sum); }));
}

}  // namespace

PLAIT_KERNEL(sample_tokens, sample_threads, 1, (SampleOperands o)) {
  PLAIT_DYNAMIC_SHARED(uint32_t, marks);
  const int64_t i = blockIdx.x, batch = i / o.rows;
  const ChoiceSettings settings = static_cast<const ChoiceSettings*>(o.settings)[i];
  int32_t token = not_chosen;
  if (settings.top_k != no_choice) {
    const LogitRow row{
        o.logits + i * o.v, o.edits + batch * o.edit_count * edit_words, marks, i % o.rows, o.v, o.edit_count,
        settings.repetition};
    mark_edits(row, marks);
    token = choose(row, settings);
  }
  if (threadIdx.x == 0) o.tokens[i] = token;
}

}  // namespace plait::cuda

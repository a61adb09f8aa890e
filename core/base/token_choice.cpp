#include "core/base/token_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace plait {
namespace {

/// The lowest id of the largest logit, or a ChoiceFault. A block's largest is found in lanes, and looked for in the first block that has
/// it: half the time of comparing one logit after another.
int32_t largest_of(std::span<const float> logits) {
  constexpr size_t lanes = 16, block = 1024;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  float best = lowest;
  size_t at = 0;
  int unordered = 0;
  for (size_t begin = 0; begin < logits.size(); begin += block) {
    const float* const in = logits.data() + begin;
    const size_t count = std::min(block, logits.size() - begin);
    float most[lanes];
    int nan[lanes] = {};
    std::fill_n(most, lanes, lowest);
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (size_t k = 0; k < lanes; ++k) {
        most[k] = in[i + k] > most[k] ? in[i + k] : most[k];
        nan[k] |= in[i + k] != in[i + k];
      }
    for (; i < count; ++i) {
      most[0] = in[i] > most[0] ? in[i] : most[0];
      nan[0] |= in[i] != in[i];
    }
    for (const int one : nan) unordered |= one;
    if (const float largest = *std::max_element(most, most + lanes); largest > best) best = largest, at = begin;
  }
  if (unordered) return nan_in_logits;
  if (!std::isfinite(best)) return no_finite_logit;
  while (logits[at] != best) ++at;
  return static_cast<int32_t>(at);
}

struct Candidate {
  float logit;
  int32_t id;
  uint64_t weight;
};

/// The order of tokens: the largest logit first, of equal ones the lowest id.
bool before(const Candidate& a, const Candidate& b) { return std::pair(-a.logit, a.id) < std::pair(-b.logit, b.id); }

/// What min-p and top-k keep, in any order.
std::vector<Candidate> candidates(std::span<const float> logits, const ChoiceSettings& settings, float largest) {
  std::vector<Candidate> kept;
  // Of top-k: what is no larger than the last of the first k so far is after them.
  const size_t k = settings.top_k > 0 ? std::min(static_cast<size_t>(settings.top_k), logits.size()) : 0;
  const size_t room = k > 0 ? std::min(4 * k + 256, logits.size()) : logits.size();
  float least = -std::numeric_limits<float>::infinity();
  const auto keep_first = [&] {
    if (k == 0 || kept.size() <= k) return;
    std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(k - 1), kept.end(), before);
    kept.resize(k);
    least = kept[k - 1].logit;
  };
  kept.reserve(room);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= least || !is_candidate(largest, logits[i], settings)) continue;
    kept.push_back({logits[i], static_cast<int32_t>(i), 0});
    if (kept.size() == room) keep_first();
  }
  keep_first();
  for (Candidate& one : kept) one.weight = token_weight(largest, one.logit, settings);
  return kept;
}

uint64_t sum_of(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& one : candidates) sum += one.weight;
  return sum;
}

/// The number, in order, of the first candidate whose weight, with those before it, is more than `place`, which is less than the sum of
/// all. It is put there, and those before it before it: a weighted quickselect (Hoare's FIND), which sorts only what is left when it is
/// little, or when pivots have been bad too often.
size_t find_place(std::span<Candidate> candidates, uint64_t place) {
  constexpr std::ptrdiff_t little = 64;
  auto begin = candidates.begin(), end = candidates.end();
  for (int round = 2 * std::bit_width(candidates.size()); round > 0 && end - begin > little; --round) {
    Candidate three[] = {*begin, begin[(end - begin) / 2], *(end - 1)};
    std::sort(three, three + 3, before);
    const Candidate pivot = three[1];
    const auto middle = std::partition(begin, end, [&](const Candidate& one) { return before(one, pivot); });
    const uint64_t ahead = sum_of({begin, middle});
    if (place < ahead) end = middle;
    else place -= ahead, begin = middle;
  }
  std::sort(begin, end, before);
  while (end - begin > 1 && place >= begin->weight) place -= begin++->weight;
  return static_cast<size_t>(begin - candidates.begin());
}

}  // namespace

int32_t choose_token(std::span<float> logits, const ChoiceSettings& settings, std::span<const LogitEdit> edits) {
  if (settings.top_k == no_choice) return not_chosen;
  for (const LogitEdit& edit : edits)
    if (edit.id >= 0 && static_cast<size_t>(edit.id) < logits.size()) {
      float& logit = logits[static_cast<size_t>(edit.id)];
      logit = edited_logit(logit, edit, settings.repetition);
    }
  const int32_t best = largest_of(logits);
  if (best < 0 || settings.per_unit == 0) return best;
  std::vector<Candidate> kept = candidates(logits, settings, logits[static_cast<size_t>(best)]);
  if (kept.empty()) return best;  // settings that are not numbers
  std::span<Candidate> nucleus = kept;
  if (settings.top_p < 1) nucleus = nucleus.first(find_place(nucleus, nucleus_end(settings.top_p, sum_of(kept))) + 1);
  return nucleus[find_place(nucleus, place_of(settings.uniform, sum_of(nucleus)))].id;
}

}  // namespace plait

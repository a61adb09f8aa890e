#include "core/base/token_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/logit_row.h"

namespace plait {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
/// Candidates that are put in order at once.
constexpr uint64_t few = 8192;

std::vector<RankedToken> weighed(std::vector<RankedToken> candidates, float largest, const ChoiceSettings& settings) {
  for (RankedToken& one : candidates) one.weight = token_weight(largest, one.logit, settings);
  return candidates;
}

uint64_t sum_of(std::span<const RankedToken> candidates) {
  uint64_t sum = 0;
  for (const RankedToken& one : candidates) sum += one.weight;
  return sum;
}

/// The candidate at a place, and the sum of the weights up to it, its own with them.
struct Found {
  int32_t id;
  uint64_t through;
};

/// The first candidate, in order, whose weight, with those before it and with `ahead`, is more than `place`, which is less than the sum
/// of all. It is put in its place, and those before it before it: a weighted quickselect (Hoare's FIND), which sorts only what is left
/// when it is little, or when pivots have been bad too often.
Found find_among(std::span<RankedToken> candidates, uint64_t place, uint64_t ahead) {
  constexpr std::ptrdiff_t little = 64;
  auto begin = candidates.begin(), end = candidates.end();
  for (int round = 2 * std::bit_width(candidates.size()); round > 0 && end - begin > little; --round) {
    RankedToken three[] = {*begin, begin[(end - begin) / 2], *(end - 1)};
    std::sort(three, three + 3);
    const RankedToken pivot = three[1];
    const auto middle = std::partition(begin, end, [&](const RankedToken& one) { return one < pivot; });
    const uint64_t sum = sum_of({begin, middle});
    if (place < ahead + sum) end = middle;
    else ahead += sum, begin = middle;
  }
  std::sort(begin, end);
  while (end - begin > 1 && place >= ahead + begin->weight) ahead += begin++->weight;
  return {begin->id, ahead + begin->weight};
}

/// The same in a row, of which `all` from `least` on are candidates: those around the place are looked for by the weight of all that are
/// before them, nearer to the largest at first, for that is where most of it is.
Found find_in(const LogitRow& row, const ChoiceSettings& settings, float least, LogitRow::Sum all, uint64_t place) {
  LogitRow::Sum ahead;
  float limit = infinity;
  for (int round = 0; all.count - ahead.count > few; ++round) {
    const double top = std::min(limit, row.largest());
    const auto middle = static_cast<float>(top - (top - static_cast<double>(least)) / (round < 2 ? 8 : 2));
    if (middle <= least || middle >= limit) break;  // equal ones are left
    const LogitRow::Sum sum = row.sum(settings.per_unit, middle);
    if (place < sum.weight) least = middle, all = sum;
    else limit = middle, ahead = sum;
  }
  std::vector<RankedToken> around = weighed(row.between(least, limit), row.largest(), settings);
  return find_among(around, place, ahead.weight);
}

/// The chosen token, of candidates with that sum.
template <class Find>
int32_t draw(const ChoiceSettings& settings, uint64_t sum, const Find& find) {
  if (settings.top_p < 1) sum = find(nucleus_end(settings.top_p, sum)).through;
  return find(place_of(settings.uniform, sum)).id;
}

}  // namespace

float least_candidate(float largest, const ChoiceSettings& settings) {
  const auto order_of = [](int32_t bits) { return bits < 0 ? bits ^ std::numeric_limits<int32_t>::max() : bits; };
  int64_t out = order_of(std::bit_cast<int32_t>(largest)), below = order_of(std::bit_cast<int32_t>(-infinity));
  while (out - below > 1) {
    const int64_t middle = below + (out - below) / 2;
    const auto logit = std::bit_cast<float>(order_of(static_cast<int32_t>(middle)));
    (is_candidate(largest, logit, settings) ? out : below) = middle;
  }
  return std::bit_cast<float>(order_of(static_cast<int32_t>(out)));
}

int32_t choose_token(std::span<float> logits, const ChoiceSettings& settings, std::span<const LogitEdit> edits) {
  if (settings.top_k == no_choice) return not_chosen;
  for (const LogitEdit& edit : edits)
    if (edit.id >= 0 && static_cast<size_t>(edit.id) < logits.size()) {
      float& logit = logits[static_cast<size_t>(edit.id)];
      logit = edited_logit(logit, edit, settings.repetition);
    }
  const LogitRow row(logits);
  if (row.has_nan()) return nan_in_logits;
  if (!std::isfinite(row.largest())) return no_finite_logit;
  // The second: of settings that are not numbers.
  if (settings.per_unit == 0 || !is_candidate(row.largest(), row.largest(), settings)) return row.largest_id();
  const float least = least_candidate(row.largest(), settings);
  if (settings.top_k == 0) {
    const LogitRow::Sum all = row.sum(settings.per_unit, least);
    return draw(settings, all.weight, [&](uint64_t place) { return find_in(row, settings, least, all, place); });
  }
  std::vector<RankedToken> kept =
      weighed(row.first(static_cast<size_t>(settings.top_k), least), row.largest(), settings);
  return draw(settings, sum_of(kept), [&](uint64_t place) { return find_among(kept, place, 0); });
}

}  // namespace plait

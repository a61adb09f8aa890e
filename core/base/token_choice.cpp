#include "core/base/token_choice.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace plait {
namespace {

/// The lowest id of the largest logit, or a ChoiceFault.
int32_t largest_of(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  int32_t at = no_finite_logit;
  bool sane = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    sane &= logits[i] == logits[i];
    if (logits[i] > best) best = logits[i], at = static_cast<int32_t>(i);
  }
  return !sane ? nan_in_logits : best == std::numeric_limits<float>::infinity() ? no_finite_logit : at;
}

struct Candidate {
  float logit;
  int32_t id;
  uint64_t weight;
};

/// What min-p and top-k keep, in order.
std::vector<Candidate> candidates(std::span<const float> logits, const ChoiceSettings& settings, float largest) {
  std::vector<Candidate> kept;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (is_candidate(largest, logits[i], settings))
      kept.push_back({logits[i], static_cast<int32_t>(i), token_weight(largest, logits[i], settings)});
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return std::pair(-a.logit, a.id) < std::pair(-b.logit, b.id);
  };
  if (settings.top_k > 0 && settings.top_k < static_cast<int64_t>(kept.size())) {
    std::nth_element(kept.begin(), kept.begin() + settings.top_k - 1, kept.end(), before);
    kept.resize(static_cast<size_t>(settings.top_k));
  }
  std::sort(kept.begin(), kept.end(), before);
  return kept;
}

uint64_t sum_of(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& one : candidates) sum += one.weight;
  return sum;
}

/// The first candidate whose weight, with those before it, is more than `place`, which is less than the sum of all.
size_t find_place(std::span<const Candidate> candidates, uint64_t place) {
  size_t i = 0;
  for (; i + 1 < candidates.size() && place >= candidates[i].weight; ++i) place -= candidates[i].weight;
  return i;
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
  const std::vector<Candidate> kept = candidates(logits, settings, logits[static_cast<size_t>(best)]);
  if (kept.empty()) return best;  // settings that are not numbers
  std::span<const Candidate> nucleus = kept;
  if (settings.top_p < 1) nucleus = nucleus.first(find_place(kept, nucleus_end(settings.top_p, sum_of(kept))) + 1);
  return nucleus[find_place(nucleus, place_of(settings.uniform, sum_of(nucleus)))].id;
}

}  // namespace plait

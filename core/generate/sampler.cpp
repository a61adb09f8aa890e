#include "core/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_map>

#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/logit_row.h"
#include "core/base/token_choice.h"

namespace plait {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

}  // namespace

void add_logprobs(std::span<const float> logits, int32_t top, SampledToken& out) {
  const LogitRow row(logits);
  const float largest = row.largest();
  const ChoiceSettings settings{.per_unit = std::numbers::log2e, .floor = never};
  double total = std::numeric_limits<double>::quiet_NaN();  // log of the sum of exp(logits)
  if (!row.has_nan() && std::isfinite(largest)) {
    const LogitRow::Sum sum = row.sum(settings.per_unit, least_candidate(largest, settings));
    total = largest + std::log(std::ldexp(static_cast<double>(sum.weight), -weight_bits));
  }
  const auto own = static_cast<size_t>(out.id);
  const float logit = logits[own];
  out.logprob = static_cast<float>(logit - total);
  const auto equal_before = std::count(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(own), logit);
  out.rank = static_cast<int32_t>(row.count_above(logit)) + static_cast<int32_t>(equal_before) + 1;
  std::vector<RankedToken> most = row.first(static_cast<size_t>(top), never);
  std::sort(most.begin(), most.end());
  for (const RankedToken& one : most) out.top.emplace_back(one.id, static_cast<float>(one.logit - total));
}

ChoiceSettings choice_settings(const SamplingParams& params, uint64_t position, uint32_t sample_index) {
  ChoiceSettings out;
  out.repetition = params.repetition_penalty;
  if (params.temperature <= 0) return out;
  // A temperature near 0 leaves the largest logit's tokens.
  out.per_unit = std::min<double>(std::numbers::log2e / params.temperature, std::numeric_limits<float>::max());
  out.floor = params.min_p > 0 ? std::log(params.min_p) * params.temperature : never;
  out.top_p = params.top_p;
  out.top_k = std::max(params.top_k, 0);
  out.uniform = counter_uniform(RandomUse::sampling, params.seed, sample_index, position);
  return out;
}

std::vector<LogitEdit> logit_edits(const SamplingParams& params, std::span<const int32_t> prompt,
                                   std::span<const int32_t> output, std::span<const int32_t> banned) {
  std::unordered_map<int32_t, LogitEdit> edits;
  const auto edit_of = [&](int32_t id) -> LogitEdit& { return edits.try_emplace(id, LogitEdit{id}).first->second; };
  if (params.repetition_penalty != 1)
    for (std::span<const int32_t> ids : {prompt, output})
      for (int32_t id : ids)
        if (id >= 0) edit_of(id).repeated = 1;  // not of a row that stands for a token
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) {
    std::unordered_map<int32_t, int> counts;
    for (int32_t id : output) ++counts[id];
    for (const auto& [id, count] : counts)
      edit_of(id).subtracted = static_cast<float>(params.presence_penalty + params.frequency_penalty * count);
  }
  for (const auto& [id, bias] : params.logit_bias) edit_of(id).bias += bias;
  for (int32_t id : banned) edit_of(id).bias = never;
  std::vector<LogitEdit> out;
  out.reserve(edits.size());
  for (const auto& [id, edit] : edits) out.push_back(edit);
  return out;
}

int32_t checked_choice(int32_t chosen) {
  if (chosen == nan_in_logits)
    throw Error(Code::numeric, "the logits hold a NaN",
                "the model's weights or its dtype do not allow this input; try dtype f32");
  if (chosen < 0) throw Error(Code::numeric, "no token can be chosen: the logits are not finite");
  return chosen;
}

bool TokenMask::allows(int32_t id) const {
  if (std::find(ends.begin(), ends.end(), id) != ends.end()) return may_end;
  const auto word = static_cast<size_t>(id) / 32;
  return word < allowed.size() && (allowed[word] >> (id % 32) & 1);
}

void apply_mask(std::span<float> logits, const TokenMask& mask) {
  std::vector<std::pair<size_t, float>> ends;
  for (int32_t id : mask.ends)
    if (id >= 0 && static_cast<size_t>(id) < logits.size())
      ends.emplace_back(static_cast<size_t>(id), mask.may_end ? logits[static_cast<size_t>(id)] : never);
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t word = begin / 32 < mask.allowed.size() ? mask.allowed[begin / 32] : 0;
    if (word == UINT32_MAX) continue;
    for (size_t i = begin; i < std::min(begin + 32, logits.size()); ++i)
      if (!(word >> (i - begin) & 1)) logits[i] = never;
  }
  for (const auto& [id, logit] : ends) logits[id] = logit;
}

namespace {

/// A choice of what the mask allows. A NaN that it hides is still an error: the model's results cannot be used.
int32_t choose_masked(std::span<float> logits, const ChoiceSettings& settings, std::vector<LogitEdit> edits,
                      const TokenMask& mask) {
  if (LogitRow(logits).has_nan()) return nan_in_logits;
  apply_mask(logits, mask);
  std::erase_if(edits, [&](const LogitEdit& edit) { return !mask.allows(edit.id); });
  if (edits.empty()) return choose_token(logits, settings, {});
  const std::vector<float> allowed(logits.begin(), logits.end());
  const int32_t chosen = choose_token(logits, settings, edits);
  if (chosen != no_finite_logit) return chosen;
  std::copy(allowed.begin(), allowed.end(), logits.begin());
  return choose_token(logits, settings, {});
}

}  // namespace

SampledToken sample(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> prompt,
                    std::span<const int32_t> output, std::span<const int32_t> banned, uint32_t sample_index,
                    const TokenMask* mask) {
  SampledToken out;
  std::vector<float> original;  // log-probabilities are the model's own
  if (params.top_logprobs >= 0) original.assign(logits.begin(), logits.end());
  const ChoiceSettings settings = choice_settings(params, output.size(), sample_index);
  std::vector<LogitEdit> edits = logit_edits(params, prompt, output, banned);
  out.id = checked_choice(mask ? choose_masked(logits, settings, std::move(edits), *mask)
                               : choose_token(logits, settings, edits));
  if (params.top_logprobs >= 0) add_logprobs(original, params.top_logprobs, out);
  return out;
}

}  // namespace plait

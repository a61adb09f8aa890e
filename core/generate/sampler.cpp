#include "core/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

/// Index of the largest logit, the lowest id on ties; throws on NaN.
int32_t argmax(std::span<const float> logits) {
  float best = never;
  int32_t at = -1;
  bool sane = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    sane &= logits[i] == logits[i];
    if (logits[i] > best) best = logits[i], at = static_cast<int32_t>(i);
  }
  if (!sane)
    throw Error(Code::numeric, "the logits hold a NaN",
                "the model's weights or its dtype do not allow this input; try dtype f32");
  if (at < 0 || best == std::numeric_limits<float>::infinity())
    throw Error(Code::numeric, "no token can be chosen: the logits are not finite");
  return at;
}

void penalize(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> prompt,
              std::span<const int32_t> output) {
  auto valid = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  if (params.repetition_penalty != 1) {
    std::unordered_map<int32_t, bool> seen;
    auto once = [&](int32_t id) {
      if (!valid(id) || !seen.emplace(id, true).second) return;
      float& logit = logits[static_cast<size_t>(id)];
      logit = static_cast<float>(logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty);
    };
    for (int32_t id : prompt) once(id);
    for (int32_t id : output) once(id);
  }
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) {
    std::unordered_map<int32_t, int> counts;
    for (int32_t id : output)
      if (valid(id)) ++counts[id];
    for (const auto& [id, count] : counts)
      logits[static_cast<size_t>(id)] -=
          static_cast<float>(params.presence_penalty + params.frequency_penalty * count);
  }
  for (const auto& [id, bias] : params.logit_bias)
    if (valid(id)) logits[static_cast<size_t>(id)] += bias;
}

/// log of the sum of exp(logits - largest).
double log_sum(std::span<const float> logits, float largest) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit} - largest);
  return std::log(sum);
}

void report(std::span<const float> logits, const SamplingParams& params, SampledToken& out) {
  if (params.top_logprobs < 0) return;
  float largest = *std::max_element(logits.begin(), logits.end());
  double total = log_sum(logits, largest) + largest;
  out.logprob = static_cast<float>(logits[static_cast<size_t>(out.id)] - total);
  auto count = std::min<size_t>(static_cast<size_t>(params.top_logprobs), logits.size());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), [&](int32_t a, int32_t b) {
        return std::pair(-logits[static_cast<size_t>(a)], a) < std::pair(-logits[static_cast<size_t>(b)], b);
      });
  for (size_t i = 0; i < count; ++i)
    out.top.emplace_back(order[i], static_cast<float>(logits[static_cast<size_t>(order[i])] - total));
}

/// Candidates by descending logit (then ascending id): the top k, or as many as top-p and min-p may need.
std::vector<int32_t> candidates(std::span<const float> logits, const SamplingParams& params, float largest) {
  // With min-p only the cut is a threshold; without top-k everything above double's resolution may count, which
  // bounds the sort for peaked distributions.
  double floor = params.min_p > 0 ? std::log(params.min_p) * params.temperature : -40 * params.temperature;
  std::vector<int32_t> kept;
  for (size_t i = 0; i < logits.size(); ++i)
    if (double{logits[i]} - largest >= floor) kept.push_back(static_cast<int32_t>(i));
  auto before = [&](int32_t a, int32_t b) {
    return std::pair(-logits[static_cast<size_t>(a)], a) < std::pair(-logits[static_cast<size_t>(b)], b);
  };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + params.top_k - 1, kept.end(), before);
    kept.resize(static_cast<size_t>(params.top_k));
  }
  std::sort(kept.begin(), kept.end(), before);
  return kept;
}

}  // namespace

SampledToken sample(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> prompt,
                    std::span<const int32_t> output, std::span<const int32_t> banned, uint32_t sample_index) {
  SampledToken out;
  std::vector<float> original;  // log-probabilities are the model's own
  if (params.top_logprobs >= 0) original.assign(logits.begin(), logits.end());
  penalize(logits, params, prompt, output);
  for (int32_t id : banned)
    if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = never;
  out.id = argmax(logits);
  if (params.temperature > 0) {
    float largest = logits[static_cast<size_t>(out.id)];
    std::vector<int32_t> kept = candidates(logits, params, largest);
    std::vector<double> weights;
    double sum = 0;
    for (int32_t id : kept) {
      weights.push_back(std::exp((double{logits[static_cast<size_t>(id)]} - largest) / params.temperature));
      sum += weights.back();
    }
    size_t count = kept.size();
    if (params.top_p < 1) {
      double reached = 0;
      for (count = 0; count < kept.size() && reached < params.top_p * sum; ++count) reached += weights[count];
      count = std::max<size_t>(count, 1);
      sum = std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
    }
    double target = counter_uniform(RandomUse::sampling, params.seed, sample_index, output.size()) * sum;
    size_t chosen = 0;
    while (chosen + 1 < count && target >= weights[chosen]) target -= weights[chosen++];
    out.id = kept[chosen];
  }
  if (params.top_logprobs >= 0) report(original, params, out);
  return out;
}

}  // namespace plait

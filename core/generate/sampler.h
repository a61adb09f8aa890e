#pragma once
// Sampling: chooses a token from a row of logits.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/token_weight.h"

namespace plait {

/// Applied in this order: penalties, bias, temperature, top-k, top-p, min-p (as Hugging Face's logits processors).
struct SamplingParams {
  double temperature = 0;         ///< 0: greedy, the token of the largest logit, the lowest id of equal ones
  int32_t top_k = 0;              ///< 0: all
  double top_p = 1;               ///< nucleus: the fewest tokens whose probabilities reach this sum
  double min_p = 0;               ///< min probability relative to the largest
  double repetition_penalty = 1;  ///< on tokens of prompt and output: positive logits divided, negative multiplied
  double presence_penalty = 0;    ///< subtracted once from tokens of the output
  double frequency_penalty = 0;   ///< subtracted for each time that a token is in the output
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  int32_t top_logprobs = -1;  ///< alternatives to report; -1: no log-probabilities
};

/// The tokens that a grammar allows.
struct TokenMask {
  std::span<const uint32_t> allowed;  ///< id: bit id % 32 of word id / 32; ids beyond it are not allowed
  std::span<const int32_t> ends;      ///< tokens that end the text, allowed only if `may_end`
  bool may_end = false;

  bool allows(int32_t id) const;
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;                           ///< under the model's distribution, before temperature and cuts
  int32_t rank = 0;                            ///< its place in that: 1 for the most likely; 0 without log-probabilities
  std::vector<std::pair<int32_t, float>> top;  ///< most likely tokens with log-probabilities, descending
};

/// What the op plait.Sample takes of them, for the token at `position` of the output.
ChoiceSettings choice_settings(const SamplingParams& params, uint64_t position, uint32_t sample_index);
std::vector<LogitEdit> logit_edits(const SamplingParams& params, std::span<const int32_t> prompt,
                                   std::span<const int32_t> output, std::span<const int32_t> banned);
/// The token that was chosen; throws Error(numeric) for a ChoiceFault.
int32_t checked_choice(int32_t chosen);

/// Sets the log-probability and the rank of its id, and the `top` most likely tokens. Of equally likely ones the smaller id is first.
void add_logprobs(std::span<const float> logits, int32_t top, SampledToken& out);

/// Tokens that are not allowed get the logit -infinity.
void apply_mask(std::span<float> logits, const TokenMask& mask);

/// One token's choice. `logits` may be changed. `prompt` and `output` are what came before; `banned` tokens cannot be
/// chosen (end of text, before the minimum length). `mask`, null if none, comes after penalties, biases and bans: where these
/// leave no token that it allows, they are not applied. Throws Error(numeric) when a logit is NaN or all are -infinity.
SampledToken sample(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> prompt,
                    std::span<const int32_t> output, std::span<const int32_t> banned, uint32_t sample_index,
                    const TokenMask* mask = nullptr);

}  // namespace plait

#pragma once
// The arithmetic of sampling, the same on the processor and on devices (kernels/cuda/kernels/sample.cu).
//
// A token's probability is an integer weight, exp((logit - largest) / temperature) in fixed point: sums of integers have the same
// value in any order, so one thread that adds them one by one, lanes, and a block whose threads add them at once choose the same token.
// All else is single operations of IEEE 754, none of which a compiler may contract.
#include <stdint.h>

namespace plait {

/// How a row's token is chosen. 8-byte words, as the op plait.Sample takes them.
struct ChoiceSettings {
  double per_unit = 0;    ///< log2(e) / temperature; 0: greedy, the lowest id of the largest logit
  double floor = 0;       ///< min-p: the least of logit - largest that is kept, 0 or below
  double top_p = 1;       ///< nucleus: the fewest tokens whose weights reach this part of the sum
  double uniform = 0;     ///< the random number, in [0, 1)
  double repetition = 1;  ///< penalty of tokens that came before: positive logits divided by it, others multiplied
  int64_t top_k = 0;      ///< 0: all; `no_choice`: the row has no token
};
constexpr int64_t choice_words = sizeof(ChoiceSettings) / 8;
constexpr int64_t no_choice = -1;

/// A change of one token's logit, before the choice. At most one for each token of a row. 4-byte words.
struct LogitEdit {
  int32_t id = 0;
  int32_t repeated = 0;  ///< 1: the penalty of repetition applies
  float subtracted = 0;
  float bias = 0;  ///< -infinity: the token cannot be chosen
};

/// In place of a token. `not_chosen`: of a row that asks for none.
enum ChoiceFault : int32_t { not_chosen = -1, nan_in_logits = -2, no_finite_logit = -3 };

/// An edit of a program's input: the row, -1 for none, and the edit.
constexpr int64_t edit_words = sizeof(LogitEdit) / 4 + 1;

constexpr float edited_logit(float logit, const LogitEdit& edit, double repetition) {
  if (edit.repeated) logit = static_cast<float>(logit > 0 ? logit / repetition : logit * repetition);
  return logit - edit.subtracted + edit.bias;
}

/// Rounded twice, everywhere: a compiler that made one operation of it would choose other tokens.
constexpr float multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, b), c);
#else  // compiled without contraction, where a processor has such an operation
  return a * b + c;
#endif
}

/// Of the largest logit. The weights of 2^19 tokens, the largest vocabulary, add up to less than 2^63.
constexpr int weight_bits = 44;
/// Those that differ from 0.
constexpr int weight_digits = 24;

/// 2^-f for f in [0, 1]: coefficients of the polynomial that is 1 at 0 and right at the Chebyshev nodes otherwise, 2^-27 off at most.
constexpr float weight_terms[] = {
    1, -0.693147175F, 0.240226091F, -0.0554992296F, 0.00959703519F, -0.00129163688F, 0.00011491995F};

/// 2^-y for y in [0, weight_bits), in units of 2^-weight_bits. Relative error below 2^-22.
constexpr uint64_t power_weight(float y) {
  const auto whole = static_cast<int32_t>(y);
  const float part = y - static_cast<float>(whole);
  float power = weight_terms[6];
  for (int i = 5; i >= 0; --i) power = multiply_add(power, part, weight_terms[i]);
  const auto digits = static_cast<uint32_t>(static_cast<int32_t>(power * (1 << weight_digits)));
  return uint64_t{digits} << (weight_bits - weight_digits) >> whole;
}

/// A logit's distance from the largest, in powers of two of the weight.
constexpr float distance_of(float largest, float logit, double per_unit) {
  const float distance = largest - logit;
  return distance > 0 ? distance * static_cast<float>(per_unit) : 0;
}
/// Whether the token can be chosen: its weight is not 0, and min-p keeps it. If one can, so can those of larger logits.
constexpr bool is_candidate(float largest, float logit, const ChoiceSettings& settings) {
  return distance_of(largest, logit, settings.per_unit) < static_cast<float>(weight_bits) &&
         static_cast<double>(logit) - static_cast<double>(largest) >= settings.floor;
}
/// Of a candidate.
constexpr uint64_t token_weight(float largest, float logit, const ChoiceSettings& settings) {
  return power_weight(distance_of(largest, logit, settings.per_unit));
}

/// A part of a sum, less than the sum: the token at that place is the first whose weight, with those before it, is more.
constexpr uint64_t place_of(double part, uint64_t sum) {
  const double place = part * static_cast<double>(sum);
  if (!(place > 0)) return 0;  // also of parts that are not numbers
  return place < static_cast<double>(sum) ? static_cast<uint64_t>(place) : sum - 1;
}

/// The last place of the nucleus: its tokens are those up to it.
constexpr uint64_t nucleus_end(double top_p, uint64_t sum) {
  const uint64_t reached = place_of(top_p, sum);
  return reached ? reached - 1 : 0;
}

}  // namespace plait

#pragma once
// The arithmetic of sampling, the same on the processor and on devices (kernels/cuda/kernels/sample.cu).
//
// A token's probability is an integer weight, exp((logit - largest) / temperature) in fixed point: sums of integers have the same
// value in any order, so one thread that adds them one by one and a block whose threads add them at once choose the same token. All
// else is single operations of IEEE 754, none of which a compiler may contract.
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

/// The upper half of a product.
constexpr uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  const uint64_t a_low = a & 0xFFFFFFFFU, a_high = a >> 32, b_low = b & 0xFFFFFFFFU, b_high = b >> 32;
  const uint64_t middle = a_high * b_low + (a_low * b_low >> 32), other = a_low * b_high + (middle & 0xFFFFFFFFU);
  return a_high * b_high + (middle >> 32) + (other >> 32);
#else  // an instruction of processors, on which a step chooses among all tokens of many rows
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
#endif
}

/// Of the largest logit. The weights of 2^19 tokens, the largest vocabulary, add up to less than 2^63.
constexpr int weight_bits = 44;

/// 2^-y for y in [0, weight_bits), in units of 2^-weight_bits.
constexpr uint64_t power_weight(double y) {
  const auto fixed = static_cast<uint64_t>(y * 4503599627370496.0);  // 2^52, exact
  const uint64_t fraction = fixed << 12;                             // of 2^64
  // ln(2)^i / i!, of 2^64: the series of 2^-f, whose rest is below 2^-48.
  constexpr uint64_t terms[] = {0xB17217F7D1CF79ACU, 0x3D7F7BFF058B1D51U, 0x0E35846B82505FC6U, 0x0276556DF749CEE5U,
                                0x005761FF9E299CC4U, 0x000A184897C363C4U, 0x0000FFE5FE2C4586U, 0x0000162C0223A5C8U,
                                0x000001B5253D395EU, 0x0000001E4CF5158CU, 0x00000001E8CAC735U, 0x000000001C3BD651U,
                                0x0000000001816193U, 0x0000000000131496U};
  uint64_t rest = 0;
  for (int i = 13; i >= 0; --i) rest = terms[i] - high_product(fraction, rest);
  return ((uint64_t{1} << weight_bits) - (high_product(fraction, rest) >> (64 - weight_bits))) >> (fixed >> 52);
}

/// A logit's distance from the largest, in powers of two of the weight.
constexpr double distance_of(float largest, float logit, double per_unit) {
  const double distance = static_cast<double>(largest) - static_cast<double>(logit);
  return distance > 0 ? distance * per_unit : 0;
}
/// Whether the token can be chosen: its weight is not 0, and min-p keeps it.
constexpr bool is_candidate(float largest, float logit, const ChoiceSettings& settings) {
  return distance_of(largest, logit, settings.per_unit) < weight_bits &&
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

#pragma once
// Part of raise: descriptions of a mixture of experts, and of its weights in the graph.
#include "core/passes/raise/region.h"

namespace plait {

/// The region between tokens, numbers and shares, and the experts' sum: e experts, k per token, from h features to o.
struct Mixture {
  Region region;  ///< from the tokens to the sum
  ValueId numbers = no_value, shares = no_value;
  int64_t e = 0, k = 0, h = 0, o = 0;
};

/// One weight of all experts, as operands of plait.Experts, and its bias; an absent one has no dtype.
struct Stack {
  Constant weight, bias, scales, zeros;
  int64_t zero = 0;

  bool present() const { return weight.dtype() != DType::none; }
};
inline bool is_there(const Constant& constant) { return constant.dtype() != DType::none; }

/// One interpretation of the weights: gate, up (may be absent), down.
struct Reading {
  Stack gate, up, down;
};

/// All interpretations that sizes allow: of stacks, or of Linears for single experts.
std::vector<Reading> read_weights(const Graph& graph, const Mixture& mixture);

/// The elements of one expert in a stack [e, ...].
std::vector<float> one_of(Constant stack, int64_t expert);
/// One expert's weight, dequantised.
std::vector<float> weight_of(const Stack& stack, int64_t expert);
/// One expert's weight times x [k], plus its bias.
std::vector<double> product(const Stack& stack, int64_t expert, const float* x, size_t k);

}  // namespace plait

#pragma once
// Part of raise: what is known of a mixture of experts, and how the weights of one are read off the graph.
#include "core/passes/raise/region.h"

namespace plait {

/// The part of the graph between tokens, numbers and shares, and the sum of the experts: e experts, k of them a token, from
/// h numbers to o.
struct Mixture {
  Region region;  ///< from the tokens to the sum
  ValueId numbers = no_value, shares = no_value;
  int64_t e = 0, k = 0, h = 0, o = 0;
};

/// One weight of all experts, as operands of plait.Experts, and where its bias is; an absent one has no dtype.
struct Stack {
  Constant weight, bias, scales, zeros;
  int64_t zero = 0;

  bool present() const { return weight.dtype() != DType::none; }
};
inline bool is_there(const Constant& constant) { return constant.dtype() != DType::none; }

/// A way to read the weights: gate, up (perhaps absent), down.
struct Reading {
  Stack gate, up, down;
};

/// The readings that sizes allow: of stacks, or of Linears that take one expert each.
std::vector<Reading> read_weights(const Graph& graph, const Mixture& mixture);

/// One expert's numbers of a stack [e, ...].
std::vector<float> one_of(Constant stack, int64_t expert);
/// The rows of one expert's weight, dequantised.
std::vector<float> weight_of(const Stack& stack, int64_t expert);
/// One expert's weight times x [k], and its bias.
std::vector<double> product(const Stack& stack, int64_t expert, const float* x, size_t k);

}  // namespace plait

#pragma once
// What names of inputs and outputs tell, by exporters' habits.
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace plait {

/// Possible names of the output that continues the input `name`: "present.0.key" of "past_key_values.0.key".
std::vector<std::string> present_names(const std::string& name);

/// Whether an input of a decoder is what its encoder makes of a request: its hidden state ("encoder_hidden_states"), or keys or values
/// of cross-attention ("past_key_values.0.encoder.key", "past_key_cross_0").
bool is_encoded(const Value& input);
/// Whether it is the mask of what the encoder makes ("encoder_attention_mask").
bool is_encoded_mask(const Value& input);

/// The input by which decoders take the encoder's hidden state [b, n, h].
inline constexpr std::string_view hidden_input = "encoder_hidden_states";

}  // namespace plait

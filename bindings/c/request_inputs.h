#pragma once
// Inputs of a request next to its prompt: rows that stand for tokens, the grids of images, an encoder's input.
#include "bindings/c/objects.h"

namespace plait::c_api {

/// Gives a request the rows that stand for tokens of its prompt, and their places. Throws Error(invalid_argument) naming the option.
void give_rows(RequestOptions& request, const Settings& settings, const OpenedModel& model,
               const DecoderInterface& interface);
/// Gives an encoder its part of the request: the prompt, if it takes text, or the option of its input. `encoder`: null if there is none.
void give_encoder(RequestOptions& request, const Settings& settings, const ModelConfig& config,
                  const Encoder* encoder);

}  // namespace plait::c_api

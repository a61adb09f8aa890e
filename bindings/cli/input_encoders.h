#pragma once
// Encoders of images and sounds next to a decoder: their rows become options of the request.
#include "bindings/cli/common.h"

namespace plait::cli {

/// Tensors for a request: the name of an encoder's input, and an .npy file.
using InputFiles = std::vector<std::pair<std::string, std::string>>;

/// Of a decoder with such encoders: runs each that takes one of the inputs, and sets what it makes as the option of the request that it is
/// for. Of other models: sets the inputs as options of their names. Throws UsageError for an input that nothing takes, or one that an
/// encoder needs in addition.
void set_inputs(const plait_api::Model& model, const InputFiles& inputs, plait_api::Options& request);

}  // namespace plait::cli

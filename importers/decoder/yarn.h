#pragma once
// YaRN (arXiv:2309.00071): high frequencies stay, low ones are divided by a factor, those between are blended.
#include "importers/decoder/decoder_spec.h"

namespace plait::decoder {

struct Yarn {
  double factor = 1;
  double context = 0;          ///< the original one, in tokens
  double fast = 32, slow = 1;  ///< turns within it, at which blending begins and ends
  bool truncate = true;        ///< these places are rounded to whole dimensions
};

/// Sets `factors` of `rope`, whose base and dims are set; not its amplitude.
void set_yarn(Rope& rope, const Yarn& yarn);

/// What cos and sin are multiplied by, unless a file gives it.
double yarn_amplitude(double factor, double scale = 1);

}  // namespace plait::decoder

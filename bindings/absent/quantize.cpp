// In place of core/quantize, and of bindings/c/quantize.
#include "bindings/c/model_export.h"
#include "core/base/part.h"

namespace plait::c_api {

BlockWeights quantized_weights(ModelObject&, const Settings&, LoadProgress&) {
  throw without_part("rounding of weights", "PLAIT_QUANTIZE");
}

}  // namespace plait::c_api

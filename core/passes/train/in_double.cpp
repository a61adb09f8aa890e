// Pass in_double: f64 for everything that is trained, if option dtype asks for it.
#include "core/passes/base/widen.h"
#include "core/passes/train/train.h"

namespace plait {

void in_double(Graph& graph, PassContext& context) {
  if (context.options.dtype == DType::f64) widen(graph, DType::f64);
}

}  // namespace plait

// Pass in_double: trains in f64 if option dtype is f64.
#include "core/passes/base/widen.h"
#include "core/passes/train/train.h"

namespace plait {

void in_double(Graph& graph, PassContext& context) {
  if (context.options.dtype == DType::f64) widen(graph, DType::f64);
}

}  // namespace plait

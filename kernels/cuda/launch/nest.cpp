#include "kernels/cuda/launch/nest.h"

namespace plait::cuda {

Shape steps_of(const Shape& shape) {
  Shape out = shape;
  int64_t step = 1;
  for (int i = shape.rank(); i-- > 0; step *= shape[i]) out[i] = step;
  return out;
}

Shape broadcast_steps(const Shape& shape, const Shape& target) {
  const Shape own = steps_of(shape);
  const int lead = target.rank() - shape.rank();
  Shape out = target;
  for (int i = 0; i < target.rank(); ++i) out[i] = i < lead || shape[i - lead] == 1 ? 0 : own[i - lead];
  return out;
}

KernelStatus broadcast_fault(const KernelCall& call, size_t i) {
  if (i >= call.inputs.size() || !call.inputs[i].present()) return {};
  const Shape &shape = call.inputs[i].shape, &target = call.outputs[0].shape;
  for (int k = 1; k <= shape.rank(); ++k)
    if (k > target.rank() || (shape.back(k) != 1 && shape.back(k) != target.back(k)))
      return {KernelCode::bad_value, static_cast<int32_t>(i), shape.back(k)};
  return {};
}

Nest make_nest(const Shape& sizes, const Shape& first, const Shape& second) {
  static_assert(Shape::max_rank <= most_dims);
  const Shape* const steps[2] = {&first, &second};
  Nest out{};
  out.count = sizes.elements();
  for (int i = 0; i < sizes.rank(); ++i) {
    if (sizes[i] == 1) continue;
    const int64_t last = out.rank - 1;
    bool merges = out.rank > 0;
    for (int k = 0; k < 2 && merges; ++k) merges = out.steps[k][last] == (*steps[k])[i] * sizes[i];
    const int64_t at = merges ? last : out.rank++;
    out.sizes[at] = sizes[i] * (merges ? out.sizes[at] : 1);
    for (int k = 0; k < 2; ++k) out.steps[k][at] = (*steps[k])[i];
  }
  return out;
}

}  // namespace plait::cuda

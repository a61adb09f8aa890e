#include "core/base/constant.h"

#include <optional>

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

/// The constant before step `count`.
Constant prefix(const Constant& constant, size_t count) {
  Constant out{{}, constant.source, {}, constant.parts};
  out.steps.assign(constant.steps.begin(), constant.steps.begin() + static_cast<std::ptrdiff_t>(count));
  return out;
}

/// The input axis of a reshape that corresponds to output axis `axis`; nullopt if that combines several axes or is a
/// part of one.
std::optional<int64_t> axis_before(const Shape& before, const Shape& after, int64_t axis) {
  const int64_t outer = after.elements(0, static_cast<int>(axis));
  for (int i = 0; i < before.rank(); ++i)
    if (before.elements(0, i) == outer && before[i] == after[static_cast<int>(axis)]) return i;
  return std::nullopt;
}

/// Swaps a slice with the step before it; false if impossible. `before`: the input of that step.
bool exchange(RecipeStep& step, RecipeStep& slice, const Constant& before) {
  const int64_t axis = slice.numbers[0];
  int64_t earlier = axis;
  switch (step.kind) {
    case Kind::cast: break;
    case Kind::transpose: earlier = step.numbers[static_cast<size_t>(axis)]; break;
    case Kind::slice:
      if (step.numbers[0] == axis) return false;  // merged instead
      break;
    case Kind::reshape: {
      const auto found = axis_before(before.shape(), Shape(step.numbers), axis);
      if (!found) return false;
      earlier = *found;
      step.numbers[static_cast<size_t>(axis)] = slice.numbers[2] - slice.numbers[1];
      break;
    }
    case Kind::part: return false;
    case Kind::reinterpret:  // the last dim has another size
      if (axis + 1 >= before.shape().rank()) return false;
      break;
  }
  slice.numbers[0] = earlier;
  std::swap(step, slice);
  return true;
}

/// Sub-byte elements can be cut only at byte boundaries.
bool possible(const RecipeStep& slice, const Constant& before) {
  const int bits = dtype_bits(before.dtype());
  const Shape shape = before.shape();
  return shape.elements(static_cast<int>(slice.numbers[0]) + 1, shape.rank()) * bits % 8 == 0;
}

/// Moves a slice of a stack into its tensors.
void slice_parts(Constant& constant, const RecipeStep& slice) {
  const int64_t axis = slice.numbers[0];
  if (axis == 0) {
    constant.parts = {constant.parts.begin() + slice.numbers[1], constant.parts.begin() + slice.numbers[2]};
    return;
  }
  for (Constant& part : constant.parts)
    part.steps.push_back({Kind::slice, {axis - 1, slice.numbers[1], slice.numbers[2]}});
}

}  // namespace

Constant slices_first(Constant constant) {
  std::vector<RecipeStep>& steps = constant.steps;
  for (size_t at = 1; at < steps.size(); ++at) {
    for (size_t i = at; i > 0 && steps[i].kind == Kind::slice; --i) {
      const Constant before = prefix(constant, i - 1);
      RecipeStep step = steps[i - 1], slice = steps[i];
      if (step.kind == Kind::slice && step.numbers[0] == slice.numbers[0]) {
        steps[i - 1].numbers = {step.numbers[0], step.numbers[1] + slice.numbers[1],
                                step.numbers[1] + slice.numbers[2]};
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        --at;
        continue;
      }
      if (!exchange(step, slice, before) || !possible(step, before)) break;
      steps[i - 1] = std::move(step);
      steps[i] = std::move(slice);
    }
  }
  while (!constant.parts.empty() && !steps.empty() && steps[0].kind == Kind::slice) {
    RecipeStep slice = std::move(steps[0]);
    if (slice.numbers[0] == 0 && slice.numbers[1] == slice.numbers[2]) {  // nothing is left, and a stack has parts
      steps[0] = std::move(slice);
      break;
    }
    steps.erase(steps.begin());
    slice_parts(constant, slice);
  }
  return constant;
}

}  // namespace plait

// NonMaxSuppression and CenterCropPad.
#include <algorithm>
#include <numeric>

#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"

namespace plait::reference {
namespace {

struct BoxAttributes {
  explicit BoxAttributes(const NodeInfo& node) : centred(node.attributes.integer("center_point_box", 0) != 0) {}
  bool centred;  ///< boxes are x, y of the centre, width, height; otherwise y, x of two opposite corners
};

struct Box {
  float top, left, bottom, right;
  float area() const { return (bottom - top) * (right - left); }
};

Box box_of(const float* numbers, bool centred) {
  if (centred)
    return {numbers[1] - numbers[3] / 2, numbers[0] - numbers[2] / 2, numbers[1] + numbers[3] / 2,
            numbers[0] + numbers[2] / 2};
  return {std::min(numbers[0], numbers[2]), std::min(numbers[1], numbers[3]), std::max(numbers[0], numbers[2]),
          std::max(numbers[1], numbers[3])};
}

/// Whether intersection over union exceeds the threshold.
bool overlaps(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0 || a.area() <= 0 || b.area() <= 0) return false;
  const float both = height * width;
  return both / (a.area() + b.area() - both) > threshold;
}

template <class N>
N scalar_or(std::span<const TensorView> inputs, size_t k, N fallback) {
  return k < inputs.size() && inputs[k].present() && inputs[k].elements() ? load_one<N>(inputs[k], 0) : fallback;
}

/// Triples (image, class, box), class by class, the best box first; of equal ones the first.
std::vector<int64_t> selected_boxes(std::span<const TensorView> inputs, bool centred) {
  std::vector<int64_t> out;
  const int64_t batch = inputs[1].shape[0], classes = inputs[1].shape[1], count = inputs[1].shape[2];
  if (inputs[0].shape[0] != batch || inputs[0].shape[1] != count || inputs[0].shape[2] != 4)
    return out;  // refused when it runs
  const auto most = scalar_or<int64_t>(inputs, 2, 0);
  const auto overlap = scalar_or<float>(inputs, 3, 0), least = scalar_or<float>(inputs, 4, 0);
  const bool limited = inputs.size() > 4 && inputs[4].present();
  const Loaded<float> boxes(inputs[0]), scores(inputs[1]);
  std::vector<int64_t> order;
  StopCheck stop;
  for (int64_t row = 0; row < batch * classes && most > 0; ++row) {
    const float* own = scores.data() + row * count;
    order.clear();
    for (int64_t i = 0; i < count; ++i)
      if (!limited || own[i] > least) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [own](int64_t a, int64_t b) { return own[a] > own[b]; });
    std::vector<Box> kept;
    for (int64_t i : order) {
      if (static_cast<int64_t>(kept.size()) == most) break;
      stop.count(static_cast<int64_t>(kept.size()) + 1);
      const Box box = box_of(boxes.data() + (row / classes * count + i) * 4, centred);
      if (std::any_of(kept.begin(), kept.end(), [&](const Box& other) { return overlaps(box, other, overlap); }))
        continue;
      kept.push_back(box);
      out.insert(out.end(), {row / classes, row % classes, i});
    }
  }
  return out;
}

/// boxes f32 [b, n, 4], scores f32 [b, classes, n], limits -> i64 [count, 3].
KernelStatus suppress(const KernelCall& call, const BoxAttributes& attributes) {
  const Shape &boxes = call.inputs[0].shape, &scores = call.inputs[1].shape;
  if (boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2]) return {KernelCode::bad_value, 0, boxes[1]};
  const std::vector<int64_t> out = selected_boxes(call.inputs, attributes.centred);
  if (static_cast<int64_t>(out.size()) != call.outputs[0].elements()) return {KernelCode::bad_value, 1, 0};
  store_all(call.outputs[0], out);
  return {};
}

Shape suppressed_shape(const KernelState* state, std::span<const TensorView> inputs, int) {
  const auto& attributes = static_cast<const State<BoxAttributes>*>(state)->value;
  return {static_cast<int64_t>(selected_boxes(inputs, attributes.centred).size()) / 3, 3};
}

/// CenterCropPad: of each axis the middle, or all of it in the middle of zeros; an odd element goes to the end.
KernelStatus crop_pad(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  for (int64_t i = 0; i < y.elements(); ++i) put_bits(y, i, 0);
  Shape common = y.shape;
  int64_t from = 0, to = 0;
  const Shape x_strides = strides_of(x.shape), y_strides = strides_of(y.shape);
  for (int dim = 0; dim < y.shape.rank(); ++dim) {
    const int64_t in = x.shape[dim], out = y.shape[dim];
    common[dim] = std::min(in, out);
    from += std::max<int64_t>(in - out, 0) / 2 * x_strides[dim];
    to += std::max<int64_t>(out - in, 0) / 2 * y_strides[dim];
  }
  const Nest<2> nest(common, {x_strides, y_strides});
  nest.rows([&](const std::array<int64_t, 2>& at) {
    for (int64_t i = 0; i < nest.row(); ++i)
      put_bits(y, to + at[1] + i * nest.step(1), get_bits(x, from + at[0] + i * nest.step(0)));
  });
  return {};
}

}  // namespace

void add_boxes(KernelTable& table) {
  Kernel kernel = kernel_of<suppress>("NonMaxSuppression", floats);
  kernel.output_shape = suppressed_shape;
  table.add(std::move(kernel));
  add<crop_pad>(table, "CenterCropPad", anything);
}

}  // namespace plait::reference

// Pooling, MaxUnpool and LRN.
#include <cmath>
#include <limits>

#include "core/base/thread_pool.h"
#include "core/base/windows.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"
#include "kernels/reference/image/sliding.h"

namespace plait::reference {
namespace {

struct PoolAttributes : WindowAttributes {
  explicit PoolAttributes(const NodeInfo& node)
      : WindowAttributes(node.attributes),
        whole(node.op.starts_with("Global")),
        counts_padding(node.attributes.integer("count_include_pad", 0) != 0),
        by_column(node.attributes.integer("storage_order", 0) != 0),
        p(static_cast<double>(node.attributes.integer("p", 2))) {}
  bool whole;           ///< the window is all of space
  bool counts_padding;  ///< of means
  bool by_column;       ///< indices number the last dim slowest
  double p;
};

std::vector<WindowAxis> pool_axes(const KernelCall& call, const PoolAttributes& attributes) {
  const Shape& x = call.inputs[0].shape;
  return window_axes(x, call.outputs[0].shape, attributes.whole ? sizes_from(x, 2) : attributes.kernel, attributes);
}

/// Calls body(plane, window) for each element of output 0, over the pool.
template <class F>
void each_window(const KernelCall& call, int64_t taps, F body) {
  const Shape& y = call.outputs[0].shape;
  const int64_t out = y.elements(2, y.rank());
  share(call.pool, y[0] * y[1], y.elements() * taps, [&](int64_t plane) {
    StopCheck stop;
    for (int64_t to = 0; to < out; ++to) {
      stop.count(taps);
      body(plane, to);
    }
  });
}

int64_t tap_count(const std::vector<WindowAxis>& axes) {
  int64_t out = 1;
  for (const WindowAxis& axis : axes) out *= axis.kernel;
  return out;
}

/// A flat position with the last dim slowest.
int64_t column_position(const std::vector<WindowAxis>& axes, int64_t position) {
  int64_t out = 0, pitch = 1;
  std::vector<int64_t> digits;
  for (size_t i = axes.size(); i-- > 0; position /= axes[i].in) digits.push_back(position % axes[i].in);
  for (size_t i = 0; i < axes.size(); ++i) {
    out += digits[axes.size() - 1 - i] * pitch;
    pitch *= axes[i].in;
  }
  return out;
}

/// The greatest of each window (NaN if there is one) and the number of its element in the whole array; a window of padding
/// has the least number and -1.
KernelStatus max_pool(const KernelCall& call, const PoolAttributes& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0], indices = output(call, 1);
  const std::vector<WindowAxis> axes = pool_axes(call, attributes);
  const int64_t taps = tap_count(axes), in = x.shape.elements(2, x.shape.rank()),
                out = y.shape.elements(2, y.shape.rank());
  const double least = is_float(x.dtype) ? -std::numeric_limits<double>::infinity() : x.dtype == DType::i8 ? -128 : 0;
  const Loaded<double> data(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  std::vector<int64_t> places(indices.present() ? result.size() : 0);
  each_window(call, taps, [&](int64_t plane, int64_t to) {
    double best = least;
    int64_t place = -1;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t from = window_source(axes, to, tap);
      if (from < 0) continue;
      const double value = data[plane * in + from];
      if (place >= 0 && !(value > best) && !(std::isnan(value) && !std::isnan(best))) continue;
      best = value;
      place = from;
    }
    const auto at = static_cast<size_t>(plane * out + to);
    result[at] = best;
    if (!places.empty())
      places[at] = place < 0 ? -1 : plane * in + (attributes.by_column ? column_position(axes, place) : place);
  });
  store_all(y, result);
  if (indices.present()) store_all(indices, places);
  return {};
}

KernelStatus average_pool(const KernelCall& call, const PoolAttributes& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<WindowAxis> axes = pool_axes(call, attributes);
  const int64_t taps = tap_count(axes), in = x.shape.elements(2, x.shape.rank()),
                out = y.shape.elements(2, y.shape.rank());
  const Loaded<double> data(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  each_window(call, taps, [&](int64_t plane, int64_t to) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t from = window_source(axes, to, tap);
      if (from >= 0) sum += data[plane * in + from];
      count += from >= 0 || (attributes.counts_padding && window_within_padding(axes, to, tap));
    }
    result[static_cast<size_t>(plane * out + to)] = count ? sum / static_cast<double>(count) : 0;
  });
  store_all(y, result);
  return {};
}

KernelStatus lp_pool(const KernelCall& call, const PoolAttributes& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<WindowAxis> axes = pool_axes(call, attributes);
  const int64_t taps = tap_count(axes), in = x.shape.elements(2, x.shape.rank()),
                out = y.shape.elements(2, y.shape.rank());
  const Loaded<double> data(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  each_window(call, taps, [&](int64_t plane, int64_t to) {
    double sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap)
      if (const int64_t from = window_source(axes, to, tap); from >= 0)
        sum += std::pow(std::fabs(data[plane * in + from]), attributes.p);
    result[static_cast<size_t>(plane * out + to)] = std::pow(sum, 1 / attributes.p);
  });
  store_all(y, result);
  return {};
}

/// MaxUnpool: x and the numbers of MaxPool -> zeros with x at them. The numbers are of an array without output_shape.
KernelStatus max_unpool(const KernelCall& call, const Sliding& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<int64_t> indices = to_ints(call.inputs[1]);
  if (static_cast<int64_t>(indices.size()) != x.elements())
    return {KernelCode::bad_value, 1, call.inputs[1].elements()};
  Shape counted = y.shape;  // what the indices number
  if (input(call, 2).present()) {
    const std::vector<WindowAxis> axes = window_axes(y.shape, x.shape, attributes.kernel, attributes);
    double elements = static_cast<double>(y.shape[0]) * static_cast<double>(y.shape[1]);
    for (size_t i = 0; i < axes.size(); ++i) {
      const WindowAxis& axis = axes[i];
      const double size = static_cast<double>(axis.out - 1) * static_cast<double>(axis.stride) +
                          static_cast<double>(axis.kernel) - static_cast<double>(axis.before) -
                          static_cast<double>(axis.after);
      elements *= size;
      // Attributes of a damaged file: sizes below 0, or too large to multiply.
      if (!(size >= 0 && size < 1e15 && elements < 1e18)) return {KernelCode::bad_value, 0, axis.stride};
      counted[static_cast<int>(i) + 2] = static_cast<int64_t>(size);
    }
  }
  for (int64_t i = 0; i < y.elements(); ++i) put_bits(y, i, 0);
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t rest = indices[i], at = 0, pitch = 1;
    if (rest < 0 || rest >= counted.elements()) return {KernelCode::index_out_of_range, 1, rest};
    for (int dim = y.shape.rank(); dim-- > 0; rest /= counted[dim]) {
      const int64_t digit = rest % counted[dim];
      if (digit >= y.shape[dim]) return {KernelCode::index_out_of_range, 1, indices[i]};
      at += digit * pitch;
      pitch *= y.shape[dim];
    }
    put_bits(y, at, get_bits(x, static_cast<int64_t>(i)));
  }
  return {};
}

struct LrnAttributes {
  explicit LrnAttributes(const NodeInfo& node)
      : alpha(node.attributes.real("alpha", 0.0001)),
        beta(node.attributes.real("beta", 0.75)),
        bias(node.attributes.real("bias", 1)),
        size(node.attributes.integer("size")) {}
  double alpha, beta, bias;
  int64_t size;
};

/// x / (bias + alpha / size * the sum of squares over `size` channels)^beta: floor((size - 1) / 2) channels before, the rest
/// after.
KernelStatus lrn(const KernelCall& call, const LrnAttributes& a) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (a.size < 1) return {KernelCode::bad_value, 0, a.size};
  const int64_t channels = x.shape[1], inner = x.shape.elements(2, x.shape.rank());
  const std::vector<double> data = load_all<double>(x);
  std::vector<double> result(data.size());
  share(call.pool, x.shape[0] * channels, x.elements() * std::min(a.size, channels), [&](int64_t plane) {
    const int64_t c = plane % channels, first = plane - c, from = std::max<int64_t>(0, c - (a.size - 1) / 2);
    const int64_t to = c + std::min(channels - 1 - c, a.size - 1 - (a.size - 1) / 2);
    for (int64_t i = 0; i < inner; ++i) {
      double squares = 0;
      for (int64_t k = from; k <= to; ++k) {
        const double value = data[static_cast<size_t>((first + k) * inner + i)];
        squares += value * value;
      }
      const auto at = static_cast<size_t>(plane * inner + i);
      result[at] = data[at] / std::pow(a.bias + a.alpha / static_cast<double>(a.size) * squares, a.beta);
    }
  });
  store_all(y, result);
  return {};
}

constexpr Domain pooled{
    "floats, i8, u8", [](const NodeInfo& node) {
      return first_is(node, [](DType dtype) { return is_float(dtype) || dtype == DType::i8 || dtype == DType::u8; });
    }};

}  // namespace

void add_pooling(KernelTable& table) {
  add<max_pool>(table, "MaxPool", pooled);
  add<average_pool>(table, "AveragePool", floats);
  add<lp_pool>(table, "LpPool", floats);
  add<max_pool>(table, "GlobalMaxPool", floats);
  add<average_pool>(table, "GlobalAveragePool", floats);
  add<lp_pool>(table, "GlobalLpPool", floats);
  add<max_unpool>(table, "MaxUnpool", floats);
  add<lrn>(table, "LRN", floats);
}

}  // namespace plait::reference

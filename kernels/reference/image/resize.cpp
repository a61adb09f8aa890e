// Resize: each axis by itself, as weighted sums of a few elements.
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"

namespace plait::reference {
namespace {

struct ResizeAttributes {
  explicit ResizeAttributes(const NodeInfo& node)
      : mode(node.attributes.string("mode", "nearest")),
        coordinates(node.attributes.string("coordinate_transformation_mode", "half_pixel")),
        nearest(node.attributes.string("nearest_mode", "round_prefer_floor")),
        policy(node.attributes.string("keep_aspect_ratio_policy", "stretch")),
        axes(node.attributes.integers("axes")),
        antialias(node.attributes.integer("antialias", 0) != 0),
        exclude_outside(node.attributes.integer("exclude_outside", 0) != 0),
        cubic(node.attributes.real("cubic_coeff_a", -0.75)),
        extrapolation(node.attributes.real("extrapolation_value", 0)) {
    const auto expect = [&](const char* name, const std::string& value,
                            std::initializer_list<std::string_view> known) {
      if (std::find(known.begin(), known.end(), value) == known.end())
        throw Error(Code::bad_model, cat("Resize: attribute ", quote(name), " is ", quote(value)));
    };
    expect("mode", mode, {"nearest", "linear", "cubic"});
    expect("nearest_mode", nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
    expect("keep_aspect_ratio_policy", policy, {"stretch", "not_larger", "not_smaller"});
    expect("coordinate_transformation_mode", coordinates,
           {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "align_corners",
            "asymmetric", "tf_crop_and_resize"});
  }
  std::string mode, coordinates, nearest, policy;
  std::vector<int64_t> axes;
  bool antialias, exclude_outside;
  double cubic, extrapolation;
};

/// One axis: sizes, their ratio before rounding, and the part of it that is resized.
struct ResizedAxis {
  int64_t in, out;
  double scale;
  double start = 0, end = 1;
};

/// The place in the input of output element `i`.
double input_place(const ResizedAxis& axis, int64_t i, const std::string& coordinates) {
  const auto x = static_cast<double>(i), in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
  const double width = axis.scale * in;  // before rounding
  if (coordinates == "asymmetric") return x / axis.scale;
  if (coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (coordinates == "align_corners") return width == 1 || axis.out == 1 ? 0 : x * (in - 1) / (width - 1);
  if (coordinates == "tf_crop_and_resize")
    return axis.out > 1 ? axis.start * (in - 1) + x * (axis.end - axis.start) * (in - 1) / (out - 1)
                        : 0.5 * (axis.start + axis.end) * (in - 1);
  const double centre = (x + 0.5) / axis.scale - 0.5;
  if (coordinates == "pytorch_half_pixel" && axis.out == 1) return 0;
  return coordinates == "half_pixel_symmetric" ? in / 2 * (1 - out / width) + centre : centre;
}

double nearest_index(double place, const std::string& rounding) {
  if (rounding == "floor") return std::floor(place);
  if (rounding == "ceil") return std::ceil(place);
  return rounding == "round_prefer_ceil" ? std::floor(place + 0.5) : std::ceil(place - 0.5);
}

/// Keys' cubic convolution (1981) with parameter a.
double cubic_weight(double distance, double a) {
  const double x = std::fabs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

struct Tap {
  int64_t at;
  double weight;
};
struct Sample {
  std::vector<Tap> taps;
  bool outside = false;  ///< the result is extrapolation_value
};

Sample sample_of(const ResizedAxis& axis, int64_t i, const ResizeAttributes& a) {
  const double place = input_place(axis, i, a.coordinates), last = static_cast<double>(axis.in - 1);
  Sample out;
  out.outside = a.coordinates == "tf_crop_and_resize" && !(place >= 0 && place <= last);
  if (axis.in == 0 || out.outside) return out;
  if (a.mode == "nearest") {
    out.taps = {{static_cast<int64_t>(std::clamp(nearest_index(place, a.nearest), 0.0, last)), 1}};
    return out;
  }
  // Antialiased, the kernel is as wide as an output element.
  const double shrink = a.antialias ? std::min(axis.scale, 1.0) : 1, reach = (a.mode == "cubic" ? 2 : 1) / shrink;
  double sum = 0;
  for (double at = std::floor(place - reach) + 1; at < place + reach; ++at) {
    const double distance = (at - place) * shrink;
    double weight = a.mode == "cubic" ? cubic_weight(distance, a.cubic) : std::max(0.0, 1 - std::fabs(distance));
    if (a.exclude_outside && (at < 0 || at > last)) weight = 0;
    sum += weight;
    out.taps.push_back({static_cast<int64_t>(std::clamp(at, 0.0, last)), weight});
  }
  if (a.antialias || a.exclude_outside)
    for (Tap& tap : out.taps) tap.weight /= sum;
  return out;
}

/// The axes that are resized, by dim. `first` is the operand roi; scales and sizes follow.
std::vector<std::pair<int, ResizedAxis>> axes_of_resize(const KernelCall& call, const ResizeAttributes& a,
                                                        const Shape& x, const Shape& y, size_t first) {
  std::vector<int> dims;
  for (int64_t axis : a.axes) dims.push_back(positive_axis(axis, x.rank()));
  for (int i = 0; a.axes.empty() && i < x.rank(); ++i) dims.push_back(i);
  const TensorView roi = input(call, first), scales = input(call, first + 1), sizes = input(call, first + 2);
  const std::vector<double> part = roi.present() ? load_all<double>(roi) : std::vector<double>();
  const std::vector<double> given = scales.present() ? load_all<double>(scales) : std::vector<double>();
  std::vector<std::pair<int, ResizedAxis>> out;
  for (size_t k = 0; k < dims.size(); ++k) {
    ResizedAxis axis{x[dims[k]], y[dims[k]], 0};
    axis.scale = k < given.size() ? given[k] : static_cast<double>(axis.out) / static_cast<double>(axis.in);
    if (part.size() == 2 * dims.size()) axis.start = part[k], axis.end = part[k + dims.size()];
    out.emplace_back(dims[k], axis);
  }
  if (a.policy == "stretch" || !sizes.present() || !sizes.elements()) return out;
  const std::vector<double> wanted = load_all<double>(sizes);
  double common = 0;
  for (size_t k = 0; k < out.size(); ++k) {
    const double own = wanted[k] / static_cast<double>(out[k].second.in);
    common = k == 0 ? own : a.policy == "not_smaller" ? std::max(common, own) : std::min(common, own);
  }
  for (auto& entry : out) entry.second.scale = common;
  return out;
}

/// By dim; empty: not resized.
std::vector<std::vector<Sample>> samples_of_resize(const KernelCall& call, const ResizeAttributes& a, const Shape& x,
                                                   const Shape& y, size_t first) {
  std::vector<std::vector<Sample>> out(static_cast<size_t>(x.rank()));
  for (const auto& [dim, axis] : axes_of_resize(call, a, x, y, first)) {
    if (axis.in == axis.out && axis.scale == 1 && a.coordinates != "tf_crop_and_resize") continue;
    for (int64_t i = 0; i < axis.out; ++i) out[static_cast<size_t>(dim)].push_back(sample_of(axis, i, a));
  }
  return out;
}

/// x with dim `dim` sampled, as arrays [outer, size, inner].
std::vector<double> sampled(const std::vector<double>& x, int64_t outer, int64_t inner, int64_t in,
                            const std::vector<Sample>& samples, double extrapolation, ThreadPool& pool) {
  const auto out = static_cast<int64_t>(samples.size());
  std::vector<double> y(static_cast<size_t>(outer * out * inner));
  share(pool, outer * out, outer * out * inner * 4, [&](int64_t row) {
    const Sample& sample = samples[static_cast<size_t>(row % out)];
    double* to = y.data() + row * inner;
    if (sample.outside) std::fill_n(to, inner, extrapolation);
    for (const Tap& tap : sample.taps) {
      const double* from = x.data() + (row / out * in + tap.at) * inner;
      for (int64_t i = 0; i < inner; ++i) to[i] += tap.weight * from[i];
    }
  });
  return y;
}

/// The nearest elements of rows of whole bytes: a row's place, then its elements by `columns`.
template <class Word>
void copy_nearest(const KernelCall& call, const std::vector<std::vector<Sample>>& samples) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int last = x.shape.rank() - 1;
  const int64_t width = y.shape[last];
  auto place = [&](int dim, int64_t at) {
    const std::vector<Sample>& own = samples[static_cast<size_t>(dim)];
    return own.empty() ? at : own[static_cast<size_t>(at)].taps[0].at;
  };
  std::vector<int64_t> columns;
  for (int64_t j = 0; j < width; ++j) columns.push_back(place(last, j));
  share(call.pool, y.elements() / width, y.elements(), [&](int64_t row) {
    int64_t rest = row, from = 0, pitch = x.shape[last];
    for (int dim = last; dim-- > 0; rest /= y.shape[dim]) {
      from += place(dim, rest % y.shape[dim]) * pitch;
      pitch *= x.shape[dim];
    }
    const Word* in = x.as<Word>() + from;
    Word* out = y.as<Word>() + row * width;
    for (int64_t j = 0; j < width; ++j) std::memcpy(out + j, in + columns[static_cast<size_t>(j)], sizeof(Word));
  });
}

/// Nearest elements are copied, whatever they are.
KernelStatus resize_nearest(const KernelCall& call, const std::vector<std::vector<Sample>>& samples,
                            double extrapolation) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int rank = x.shape.rank();
  for (int64_t i = 0; i < y.elements(); ++i) {
    int64_t rest = i, from = 0, pitch = 1;
    bool outside = false;
    for (int dim = rank; dim-- > 0; rest /= y.shape[dim]) {
      int64_t at = rest % y.shape[dim];
      if (const auto& own = samples[static_cast<size_t>(dim)]; !own.empty()) {
        const Sample& sample = own[static_cast<size_t>(at)];
        outside |= sample.outside;
        at = sample.taps.empty() ? 0 : sample.taps[0].at;
      }
      from += at * pitch;
      pitch *= x.shape[dim];
    }
    if (outside) store_one(y, i, extrapolation);
    else put_bits(y, i, get_bits(x, from));
  }
  return {};
}

/// Resize: x [...], roi?, scales? or sizes? of the axes -> x sampled along each.
KernelStatus resize(const KernelCall& call, const ResizeAttributes& a) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (y.elements() == 0) return {};
  if (x.elements() == 0) return {KernelCode::bad_value, 0, 0};
  const std::vector<std::vector<Sample>> samples = samples_of_resize(call, a, x.shape, y.shape, 1);
  const bool whole_bytes = dtype_bits(x.dtype) >= 8 && x.shape.rank() > 0;
  if (a.mode == "nearest" && whole_bytes && a.coordinates != "tf_crop_and_resize") {
    with_word(dtype_bits(x.dtype), [&]<class Word>(Word) { copy_nearest<Word>(call, samples); });
    return {};
  }
  if (a.mode == "nearest") return resize_nearest(call, samples, a.extrapolation);
  std::vector<double> values = load_all<double>(x);
  Shape sizes = x.shape;
  for (int dim = sizes.rank(); dim-- > 0;) {
    const std::vector<Sample>& own = samples[static_cast<size_t>(dim)];
    if (own.empty()) continue;
    values = sampled(values, sizes.elements(0, dim), sizes.elements(dim + 1, sizes.rank()), sizes[dim], own,
                     a.extrapolation, call.pool);
    sizes[dim] = y.shape[dim];
  }
  if (a.coordinates == "tf_crop_and_resize")  // outside along one axis is outside
    for (int64_t i = 0; i < y.elements(); ++i) {
      int64_t rest = i;
      for (int dim = sizes.rank(); dim-- > 0; rest /= sizes[dim])
        if (const auto& own = samples[static_cast<size_t>(dim)];
            !own.empty() && own[static_cast<size_t>(rest % sizes[dim])].outside)
          values[static_cast<size_t>(i)] = a.extrapolation;
    }
  store_all(y, values);
  return {};
}

/// dy, sizes of x, roi?, scales? or sizes? -> dx: along each axis every element of dy is added to what it was sampled from.
KernelStatus resize_back(const KernelCall& call, const ResizeAttributes& a) {
  const TensorView &dy = call.inputs[0], &dx = call.outputs[0];
  if (dy.shape.rank() != dx.shape.rank()) return {KernelCode::bad_value, 0, dy.shape.rank()};
  if (dx.elements() == 0) return {};
  const std::vector<std::vector<Sample>> samples = samples_of_resize(call, a, dx.shape, dy.shape, 2);
  std::vector<double> values = load_all<double>(dy);
  Shape sizes = dy.shape;
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    const std::vector<Sample>& own = samples[static_cast<size_t>(dim)];
    if (own.empty() && sizes[dim] != dx.shape[dim]) return {KernelCode::bad_value, 0, sizes[dim]};
    if (own.empty()) continue;
    const int64_t outer = sizes.elements(0, dim), inner = sizes.elements(dim + 1, sizes.rank()), in = dx.shape[dim],
                  out = sizes[dim];
    std::vector<double> spread(static_cast<size_t>(outer * in * inner));
    share(call.pool, outer, outer * out * inner * 4, [&](int64_t row) {
      for (int64_t i = 0; i < out; ++i)
        for (const Tap& tap : own[static_cast<size_t>(i)].taps) {
          const double* from = values.data() + (row * out + i) * inner;
          double* to = spread.data() + (row * in + tap.at) * inner;
          for (int64_t j = 0; j < inner; ++j) to[j] += tap.weight * from[j];
        }
    });
    values = std::move(spread);
    sizes[dim] = in;
  }
  store_all(dx, values);
  return {};
}

}  // namespace

void add_resize(KernelTable& table) {
  add<resize>(table, "Resize", anything);
  add<resize_back>(table, "plait.ResizeBack", floats);
}

}  // namespace plait::reference

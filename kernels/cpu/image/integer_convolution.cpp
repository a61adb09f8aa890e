// ConvInteger and QLinearConv: products of the weights with columns of the image, which are made panel by panel. Columns are places of a
// StridedPlane, or the image itself.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/image/register.h"
#include "kernels/cpu/image/strided_plane.h"
#include "kernels/cpu/linear/integer_products.h"
#include "kernels/cpu/rows/code_loops.h"

namespace plait::cpu {
namespace {

size_t weight_of(const NodeInfo& node) { return node.op == "QLinearConv" ? 3 : 1; }
/// Whether the weights are packed.
bool is_packed(const NodeInfo& node) {
  return node.inputs[weight_of(node)].constant && WindowAttributes(node.attributes).group == 1;
}

struct IntegerConvState : KernelState {
  explicit IntegerConvState(const NodeInfo& node)
      : windows(node.attributes), quantized(node.op == "QLinearConv"), packed(is_packed(node)) {}
  WindowAttributes windows;
  bool quantized, packed;
  size_t w() const { return quantized ? 3 : 1; }
  size_t x_zero() const { return 2; }
  size_t w_zero() const { return quantized ? 5 : 3; }
};

std::shared_ptr<const KernelState> prepare_integer_conv(const NodeInfo& node) {
  return std::make_shared<IntegerConvState>(node);
}

bool accepts_integer_conv(const NodeInfo& node) {
  if (node.op == "ConvInteger") return is_code(node.inputs[0].dtype) && is_code(node.inputs[1].dtype);
  return is_code(node.inputs[0].dtype) && is_code(node.inputs[3].dtype) && is_code(node.outputs[0].dtype) &&
         is_f32(node, 1) && is_f32(node, 4) && is_f32(node, 6);
}

/// x [batch, group read, in], w [group made, read, taps] -> y [batch, group made, out].
struct IntegerConv {
  IntegerConv(const IntegerConvState& state, std::span<const TensorView> inputs, const TensorView& y)
      : x(inputs[0]),
        w(inputs[state.w()]),
        axes(window_axes(x.shape, y.shape, {w.shape.begin() + 2, w.shape.end()}, state.windows)),
        group(state.windows.group),
        read(w.shape[1]),
        made(group > 0 ? w.shape[0] / group : 0),
        in(x.shape.elements(2, x.shape.rank())),
        out(y.shape.elements(2, y.shape.rank())),
        taps(w.shape.elements(2, w.shape.rank())),
        pointwise(taps == 1 && std::all_of(axes.begin(), axes.end(),
                                           [](const WindowAxis& axis) {
                                             return axis.before == 0 && axis.out == axis.in &&
                                                    (axis.stride == 1 || axis.in == 1);
                                           })),
        fits(!axes.empty() && group >= 1 && x.shape[1] == read * group && w.shape[0] % group == 0) {}

  /// Each output channel reads one channel, and sums fit into i32.
  bool depthwise() const { return group > 1 && read == 1 && taps <= IntegerPlan::deepest; }

  const TensorView &x, &w;
  std::vector<WindowAxis> axes;
  int64_t group, read, made, in, out, taps;
  bool pointwise;  ///< columns are the image itself
  bool fits;
};

/// What a convolution that is not depthwise keeps: packed weights, planes of the channels that a group reads, and the workers'.
struct ConvPlan {
  static constexpr int64_t slack = 64;  // loops take whole vectors

  ConvPlan(const IntegerTiles& tiles, const IntegerConv& conv, bool packed)
      : product(tiles, conv.made, conv.read * conv.taps),
        left_bytes(packed ? 0 : product.left_bytes),
        plane_bytes(conv.pointwise ? 0 : align(StridedPlane(conv.axes, 0, conv.axes[0].out).size() + slack)),
        workers(left_bytes + plane_bytes * conv.read) {}

  IntegerPlan product;
  int64_t left_bytes, plane_bytes;
  int64_t workers;  ///< where their memory begins
};

/// Depthwise convolutions in bands of windows, whose padded planes stay in a core's cache.
struct DepthwisePlan {
  static constexpr int64_t most = 1 << 16, slack = ConvPlan::slack;

  explicit DepthwisePlan(const IntegerConv& conv) {
    const int64_t one = StridedPlane(conv.axes, 0, 1).size(), out = conv.axes[0].out;
    const int64_t next = out > 1 ? StridedPlane(conv.axes, 0, 2).size() - one : 0;
    band = next > 0 ? std::clamp<int64_t>((most - one) / next + 1, 1, out) : out;
    const StridedPlane plane(conv.axes, 0, band);
    padded = align(2 * (plane.size() + slack));
    sums = padded + align(plane.size());
    codes = sums + align(4 * (plane.places() + slack));
    taps = codes + align(plane.places() + slack);
    weights = taps + align((conv.taps + 1) * int64_t{sizeof(int16_t*)});
    worker_bytes = weights + align((conv.taps + 1) * 2);
  }

  int64_t band;                                ///< windows of axis 0
  int64_t padded, sums, codes, taps, weights;  ///< where they are in a worker's memory, after the plane
  int64_t worker_bytes;
};

struct DepthwiseScratch {
  DepthwiseScratch(std::byte* memory, const DepthwisePlan& plan)
      : plane(reinterpret_cast<int16_t*>(memory)),
        padded(reinterpret_cast<uint8_t*>(memory + plan.padded)),
        sums(reinterpret_cast<int32_t*>(memory + plan.sums)),
        codes(memory + plan.codes),
        taps(reinterpret_cast<const int16_t**>(memory + plan.taps)),
        weights(reinterpret_cast<int16_t*>(memory + plan.weights)) {}
  int16_t* plane;   ///< numbers, less the zero point
  uint8_t* padded;  ///< their codes
  int32_t* sums;
  std::byte* codes;
  const int16_t** taps;
  int16_t* weights;
};

/// The padded plane of codes.
void fill_codes(const StridedPlane& plane, const uint8_t* image, int32_t zero, uint8_t* to) {
  plane.fill(
      to,
      [&](int64_t from, int64_t step, int64_t count, uint8_t* line) {
        if (step == 1) std::copy_n(image + from, count, line);
        else if (step == 2)  // known to the compiler: several at once
          for (int64_t j = 0; j < count; ++j) line[j] = image[from + j * 2];
        else
          for (int64_t j = 0; j < count; ++j) line[j] = image[from + j * step];
      },
      [&](int64_t count, uint8_t* line) { std::fill_n(line, count, static_cast<uint8_t>(zero)); });
}

template <Isa isa>
int64_t integer_conv_scratch(const KernelState* state, std::span<const TensorView> inputs,
                             std::span<const TensorView> outputs, int threads) {
  const IntegerConv conv(*static_cast<const IntegerConvState*>(state), inputs, outputs[0]);
  if (!conv.fits || outputs[0].elements() == 0) return 0;
  if (conv.depthwise()) return threads * DepthwisePlan(conv).worker_bytes;
  const ConvPlan plan(integer_tiles(isa), conv, static_cast<const IntegerConvState*>(state)->packed);
  return plan.workers + threads * plan.product.worker_bytes;
}

/// Sums to 8-bit numbers, which may leave i32 with their bias: each times the scale of its channel, rounded to even, plus the zero point.
template <class Sum, class Code>
void store_codes(const Sum* sums, int64_t count, int64_t bias, float scale, int32_t zero, Code* to) {
  constexpr float low = std::numeric_limits<Code>::min(), high = std::numeric_limits<Code>::max();
  constexpr float magic = 12582912;  // 1.5 2^23: the sum has no fraction
  const auto shift = static_cast<float>(zero);
  for (int64_t j = 0; j < count; ++j) {
    const float value = static_cast<float>(static_cast<int64_t>(sums[j]) + bias) * scale;
    const float held = value < -1024 ? -1024.0f : value > 1024 ? 1024.0f : value;  // far beyond all codes
    const float rounded = (held + magic) - magic + shift;
    to[j] = static_cast<Code>(static_cast<int32_t>(rounded < low ? low : rounded > high ? high : rounded));
  }
}

const TensorView* operand(const KernelCall& call, size_t k) {
  return k < call.inputs.size() && call.inputs[k].present() ? &call.inputs[k] : nullptr;
}

/// The first operand that is neither one element nor one for each channel; -1 if none.
int32_t misfit(const KernelCall& call, const IntegerConvState& state, int64_t channels) {
  auto wrong = [&](size_t k, bool per_channel) {
    const TensorView* own = operand(call, k);
    return own && own->elements() != 1 && !(per_channel && own->elements() == channels);
  };
  if (wrong(state.x_zero(), false)) return static_cast<int32_t>(state.x_zero());
  if (wrong(state.w_zero(), true)) return static_cast<int32_t>(state.w_zero());
  if (!state.quantized) return -1;
  for (size_t k : {1, 6, 7})
    if (wrong(k, false)) return static_cast<int32_t>(k);
  if (wrong(4, true)) return 4;
  const TensorView* bias = operand(call, 8);
  return bias && bias->elements() != channels ? 8 : -1;
}

template <Isa isa>
KernelStatus run_integer_conv(const KernelCall& call) {
  const auto& state = *static_cast<const IntegerConvState*>(call.state);
  const TensorView& y = call.outputs[0];
  const IntegerConv conv(state, call.inputs, y);
  if (!conv.fits) return {KernelCode::bad_value, static_cast<int32_t>(state.w()), conv.w.shape[0]};
  if (const int32_t k = misfit(call, state, conv.w.shape[0]); k >= 0) return {KernelCode::bad_value, k, 0};
  if (y.elements() == 0) return {};
  const TensorView *w_zero = operand(call, state.w_zero()), *bias = state.quantized ? operand(call, 8) : nullptr;
  const int32_t zero = code_at(operand(call, state.x_zero()), 0);
  const int64_t k = conv.read * conv.taps;
  const CodeLoops& loops = code_loops(isa);
  auto codes = [](const TensorView& one) { return reinterpret_cast<const uint8_t*>(one.data); };
  // By channel. Sums of 32 bits stay so with their bias if it is small enough.
  std::vector<float> scales;
  std::vector<int32_t> w_zeros;
  bool narrow = true;
  for (int64_t channel = 0; channel < conv.w.shape[0]; ++channel) {
    w_zeros.push_back(w_zero ? code_at(w_zero, w_zero->elements() == 1 ? 0 : channel) : 0);
    if (!state.quantized) continue;
    scales.push_back(*call.inputs[1].as<float>() *
                     call.inputs[4].as<float>()[call.inputs[4].elements() == 1 ? 0 : channel] /
                     *call.inputs[6].as<float>());
    constexpr int64_t most = int64_t{255} * 255;
    narrow &= !bias || std::abs(int64_t{bias->as<int32_t>()[channel]}) + k * most <= INT32_MAX;
  }
  const int32_t* const shifts = bias ? bias->as<int32_t>() : nullptr;
  const int32_t y_zero = state.quantized ? code_at(&call.inputs[7], 0) : 0;
  // Writes the results of sums [channels, count]; those of channels are `pitch` apart.
  auto finish = [&](int64_t first, int64_t channels, int64_t count, const auto* sums, std::byte* to, int64_t pitch) {
    if (!state.quantized) {
      for (int64_t channel = 0; channel < channels; ++channel)
        for (int64_t j = 0; j < count; ++j)
          reinterpret_cast<int32_t*>(to)[channel * pitch + j] = static_cast<int32_t>(sums[channel * count + j]);
      return;
    }
    auto store = [&](auto* own) {
      const float* const of = scales.data() + first;
      if constexpr (sizeof(*sums) == 4)
        if (narrow)
          return codes_of(loops, own)
              .requantize(sums, channels, count, shifts ? shifts + first : nullptr, of, static_cast<float>(y_zero),
                          own, pitch);
      for (int64_t channel = 0; channel < channels; ++channel)
        store_codes(sums + channel * count, count, shifts ? shifts[first + channel] : 0, of[channel], y_zero,
                    own + channel * pitch);
    };
    if (y.dtype == DType::u8) store(reinterpret_cast<uint8_t*>(to));
    else store(reinterpret_cast<int8_t*>(to));
  };
  const int64_t size = y.elements() ? y.bytes() / y.elements() : 0;
  auto zero_of = [&](int64_t channel) { return w_zeros[static_cast<size_t>(channel)]; };
  if (conv.depthwise()) {
    const DepthwisePlan plan(conv);
    std::vector<StridedPlane> planes;
    std::vector<std::vector<int64_t>> tap_offsets;
    for (int64_t first = 0; first < conv.axes[0].out; first += plan.band) {
      planes.emplace_back(conv.axes, first, std::min(plan.band, conv.axes[0].out - first));
      tap_offsets.push_back(planes.back().tap_offsets());
    }
    const auto bands = static_cast<int64_t>(planes.size());
    const int64_t items = y.shape[0] * conv.group * bands;
    auto run_one = [&](int64_t item, int worker) {
      const int64_t first = item % bands * plan.band, image = item / bands;
      const StridedPlane& plane = planes[static_cast<size_t>(item % bands)];
      const std::vector<int64_t>& offsets = tap_offsets[static_cast<size_t>(item % bands)];
      DepthwiseScratch own(call.scratch.data() + worker * plan.worker_bytes, plan);
      fill_codes(plane, codes(conv.x) + image * conv.in, zero, own.padded);
      if (conv.x.dtype == DType::u8) loops.u8.centre(own.padded, plane.size(), zero, own.plane);
      else loops.i8.centre(reinterpret_cast<const int8_t*>(own.padded), plane.size(), zero, own.plane);
      for (int64_t channel = image % conv.group * conv.made, end = channel + conv.made; channel < end; ++channel) {
        for (int64_t tap = 0; tap < k + k % 2; ++tap) {
          const bool there = tap < k;
          own.taps[tap] = own.plane + (there ? offsets[static_cast<size_t>(tap)] : 0);
          own.weights[tap] = static_cast<int16_t>(there ? code_at(&conv.w, channel * k + tap) - zero_of(channel) : 0);
        }
        loops.weigh(own.taps, own.weights, (k + 1) / 2, plane.places(), own.sums);
        std::byte* const to = y.data + ((image / conv.group * conv.w.shape[0] + channel) * conv.out +
                                        first * conv.out / conv.axes[0].out) *
                                           size;
        std::byte* results = reinterpret_cast<std::byte*>(own.sums);
        const int64_t places = (plane.places() + 15) / 16 * 16;
        if (state.quantized) finish(channel, 1, places, own.sums, results = own.codes, places);
        const int64_t row = plane.row_length() * size;
        for (size_t i = 0; i < plane.row_places().size(); ++i)
          std::memcpy(to + static_cast<int64_t>(i) * row, results + plane.row_places()[i] * size,
                      static_cast<size_t>(row));
      }
    };
    share_ranges(call.pool, items, 1, y.elements() / items * (k + 8) / 4,
                 [&](int64_t begin, int64_t end, int worker) {
                   for (int64_t item = begin; item < end; ++item) run_one(item, worker);
                 });
    return {};
  }
  const IntegerTiles& tiles = integer_tiles(isa);
  const ConvPlan plan(tiles, conv, state.packed);
  const StridedPlane plane(conv.axes, 0, conv.axes[0].out);
  const std::vector<int64_t>& row_places = plane.row_places();
  const std::vector<int64_t> offsets = plane.tap_offsets();
  std::vector<int64_t> read_from;  // by column of the weights: where the first window reads
  if (!conv.pointwise)
    for (int64_t channel = 0; channel < conv.read; ++channel)
      for (const int64_t offset : offsets) read_from.push_back(channel * plan.plane_bytes + offset);
  auto* left = reinterpret_cast<int32_t*>(call.scratch.data());
  auto* planes = reinterpret_cast<uint8_t*>(call.scratch.data() + plan.left_bytes);
  bool left_zeros = false;
  for (int64_t channel = 0; channel < conv.w.shape[0]; ++channel)
    left_zeros |= zero_of(channel) + tiles.left_shift(conv.w.dtype == DType::i8) != 0;
  for (int64_t item = 0; item < y.shape[0] * conv.group; ++item) {
    const int64_t first = item % conv.group * conv.made;  // channel of the weights
    const uint8_t* image = codes(conv.x) + item * conv.read * conv.in;
    if (!state.packed)
      share(call.pool, plan.product.row_tiles, conv.made * k / 4, [&](int64_t tile, int) {
        pack_left_tile(
            tiles, plan.product, tile, conv.made, k, conv.w.dtype == DType::i8,
            [&](int64_t row) { return codes(conv.w) + (first + row) * k; }, left);
      });
    if (!conv.pointwise)
      share(call.pool, conv.read, conv.read * plan.plane_bytes / 4, [&](int64_t channel, int) {
        fill_codes(plane, image + channel * conv.in, zero, planes + channel * plan.plane_bytes);
      });
    const IntegerProduct product{.m = conv.made,
                                 .n = conv.pointwise ? conv.out : plane.places(),
                                 .k = k,
                                 .left = state.packed ? reinterpret_cast<const int32_t*>(conv.w.data) : left,
                                 .right = nullptr,
                                 .left_signed = conv.w.dtype == DType::i8,
                                 .right_signed = conv.x.dtype == DType::i8,
                                 .left_zeros = left_zeros,
                                 .scratch = call.scratch.data() + plan.workers};
    std::byte* const images = y.data + (item / conv.group * conv.w.shape[0] + first) * conv.out * size;
    run_integer_product(
        call.pool, tiles, product, [&](int64_t row) { return zero_of(first + row); }, [&](int64_t) { return zero; },
        [&](int64_t row, int64_t j0, int64_t count, uint8_t* to) -> const uint8_t* {
          if (!conv.pointwise) return planes + read_from[static_cast<size_t>(row)] + j0;
          const uint8_t* from = image + row * conv.in + j0;
          if (codes(conv.x) + conv.x.elements() - from >= tiles.columns) return from;
          return std::copy_n(from, count, to), to;
        },
        [&](int64_t made, int64_t rows, int64_t j0, int64_t count, const auto* sums) {
          std::byte* const to = images + made * conv.out * size;
          if (conv.pointwise && count == tiles.columns)
            return finish(first + made, rows, count, sums, to + j0 * size, conv.out);
          std::byte results[4 * IntegerTiles::most_rows * IntegerTiles::most_columns];
          finish(first + made, rows, tiles.columns, sums, results, tiles.columns);
          // Results [begin, end) of the panel, from element `at` of each channel on.
          const auto put = [&](int64_t at, int64_t begin, int64_t end) {
            for (int64_t row = 0; row < rows; ++row)
              std::memcpy(to + (row * conv.out + at) * size, results + (row * tiles.columns + begin) * size,
                          static_cast<size_t>((end - begin) * size));
          };
          if (conv.pointwise) return put(j0, 0, count);
          auto own = std::upper_bound(row_places.begin(), row_places.end(), j0) - row_places.begin() - 1;
          for (; own < static_cast<std::ptrdiff_t>(row_places.size()); ++own) {
            const int64_t begin = row_places[static_cast<size_t>(own)];
            if (begin >= j0 + count) break;
            const int64_t from = std::max(begin, j0), end = std::min(begin + plane.row_length(), j0 + count);
            if (from < end) put(own * plane.row_length() + from - begin, from - j0, end - j0);
          }
        });
  }
  return {};
}

/// Weights [made, read, taps] as tiles of rows.
template <Isa isa>
Tensor pack_integer_weights(const Tensor& plain, ThreadPool* pool) {
  const IntegerTiles& tiles = integer_tiles(isa);
  const int64_t m = plain.shape()[0], k = plain.shape().elements(1, plain.shape().rank());
  const IntegerPlan plan(tiles, m, k);
  auto blob = make_blob(std::max(plan.left_bytes, plain.bytes()));
  const auto* codes = reinterpret_cast<const uint8_t*>(plain.data());
  auto pack = [&](int64_t tile, int) {
    pack_left_tile(
        tiles, plan, tile, m, k, plain.dtype() == DType::i8, [&](int64_t row) { return codes + row * k; },
        reinterpret_cast<int32_t*>(blob->mutable_data()));
  };
  if (pool) share(*pool, plan.row_tiles, m * k, pack);
  else
    for (int64_t tile = 0; tile < plan.row_tiles; ++tile) pack(tile, 0);
  return Tensor(plain.dtype(), plain.shape(), blob);
}

template <Isa isa>
const PackedLayout* pack_integer_conv(const NodeInfo& node, size_t operand) {
  static constexpr PackedLayout rows{isa == Isa::avx2          ? "integer tiles of 6"
                                     : isa == Isa::avx512      ? "integer tiles of 12"
                                     : isa == Isa::avx512_bf16 ? "integer tiles of 12 x 4"
                                                               : "integer tiles of 32 x 64",
                                     pack_integer_weights<isa>};
  return operand == weight_of(node) && is_packed(node) ? &rows : nullptr;
}

template <Isa isa>
void add_integer_conv(KernelTable& table) {
  for (const char* op : {"ConvInteger", "QLinearConv"})
    add_kernel(table, isa,
               {.op = op,
                .dtypes = "u8, i8",
                .accepts = accepts_integer_conv,
                .prepare = prepare_integer_conv,
                .scratch_bytes = integer_conv_scratch<isa>,
                .run = run_integer_conv<isa>,
                .pack = pack_integer_conv<isa>});
}

}  // namespace

void add_integer_convolution(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_integer_conv<Isa::avx2>(table);
  if (isa == Isa::avx512) add_integer_conv<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_integer_conv<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_integer_conv<Isa::amx>(table);
}

}  // namespace plait::cpu

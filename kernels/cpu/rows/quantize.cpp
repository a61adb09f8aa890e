// QuantizeLinear and DequantizeLinear between f32 and 8-bit integers, by one scale or one for each index of an axis; and
// DynamicQuantizeLinear.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "kernels/cpu/rows/code_loops.h"
#include "kernels/cpu/rows/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct ScaleState : KernelState {
  explicit ScaleState(const NodeInfo& node) : axis(node.attributes.integer("axis", 1)) {}
  int64_t axis;
};

std::shared_ptr<const KernelState> prepare_scales(const NodeInfo& node) { return std::make_shared<ScaleState>(node); }

bool is_byte(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }
bool by_axis(const NodeInfo& node) { return node.attributes.integer("block_size", 0) == 0 && is_f32(node, 1); }
bool accepts_quantize(const NodeInfo& node) {
  return by_axis(node) && is_f32(node, 0) && is_byte(node.outputs[0].dtype);
}
bool accepts_dequantize(const NodeInfo& node) {
  return by_axis(node) && is_byte(node.inputs[0].dtype) && node.outputs[0].dtype == DType::f32;
}

/// Runs of elements with one scale and zero point.
struct Runs {
  explicit Runs(const KernelCall& call) : scales(call.inputs[1].as<float>()) {
    const Shape& x = call.inputs[0].shape;
    const int64_t count = call.inputs[1].elements();
    if (call.inputs.size() > 2 && call.inputs[2].present()) zeros = &call.inputs[2];
    const int64_t given = static_cast<const ScaleState*>(call.state)->axis,
                  axis = given < 0 ? given + x.rank() : given;
    if (count != 1 && (axis < 0 || axis >= x.rank() || x[static_cast<int>(axis)] != count)) operand = 1;
    else if (zeros && zeros->elements() != 1 && zeros->elements() != count) operand = 2;
    length = count == 1    ? call.inputs[0].elements()
             : operand < 0 ? x.elements(static_cast<int>(axis) + 1, x.rank())
                           : 0;
    channels = count;
  }
  float scale(int64_t run) const { return scales[run % channels]; }
  float zero(int64_t run) const {
    if (!zeros) return 0;
    const int64_t at = zeros->elements() == 1 ? 0 : run % channels;
    return zeros->dtype == DType::u8 ? zeros->as<uint8_t>()[at] : zeros->as<int8_t>()[at];
  }
  /// Calls task(first, count, run) for parts of runs, over the pool.
  template <class Task>
  void each(const KernelCall& call, Task task) const {
    constexpr int64_t most = 1 << 15;
    const int64_t elements = call.inputs[0].elements();
    if (elements == 0) return;
    const int64_t parts = (length + most - 1) / most;
    share(call.pool, elements / length * parts, elements, [&](int64_t item, int) {
      const int64_t run = item / parts, begin = item % parts * most;
      task(run * length + begin, std::min(most, length - begin), run);
    });
  }

  const float* scales;
  const TensorView* zeros = nullptr;
  int64_t length = 0, channels = 1;
  int32_t operand = -1;  ///< the one whose size does not fit
};

template <Isa isa>
KernelStatus run_quantize(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const Runs runs(call);
  if (runs.operand >= 0)
    return {KernelCode::bad_value, runs.operand, call.inputs[static_cast<size_t>(runs.operand)].elements()};
  std::atomic<bool> fine{true};
  runs.each(call, [&](int64_t first, int64_t count, int64_t run) {
    const float scale = runs.scale(run), zero = runs.zero(run), *from = x.as<float>() + first;
    const CodeLoops& loops = code_loops(isa);
    const bool own = y.dtype == DType::u8 ? loops.u8.quantize(from, count, scale, zero, y.as<uint8_t>() + first)
                                          : loops.i8.quantize(from, count, scale, zero, y.as<int8_t>() + first);
    if (!own) fine.store(false, std::memory_order_relaxed);
  });
  if (fine) return {};
  int64_t at = 0;
  while (at + 1 < x.elements() && !std::isnan(x.as<float>()[at] / runs.scale(at / runs.length))) ++at;
  return {KernelCode::not_a_number, 0, at};
}

template <Isa isa>
KernelStatus run_dequantize(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const Runs runs(call);
  if (runs.operand >= 0)
    return {KernelCode::bad_value, runs.operand, call.inputs[static_cast<size_t>(runs.operand)].elements()};
  runs.each(call, [&](int64_t first, int64_t count, int64_t run) {
    const float scale = runs.scale(run), zero = runs.zero(run);
    float* to = y.as<float>() + first;
    const CodeLoops& loops = code_loops(isa);
    if (x.dtype == DType::u8) loops.u8.dequantize(x.as<uint8_t>() + first, count, scale, zero, to);
    else loops.i8.dequantize(x.as<int8_t>() + first, count, scale, zero, to);
  });
  return {};
}

/// x -> u8, scale, zero point, as the reference defines them: the range of x and 0.
template <Isa isa>
KernelStatus run_dynamic_quantize(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const auto* from = x.as<float>();
  float low = 0, high = 0;
  std::mutex mutex;
  share_ranges(call.pool, x.elements(), 4096, 1, [&](int64_t begin, int64_t end, int) {
    float least = 0, most = 0;
    code_loops(isa).range(from + begin, end - begin, least, most);
    const std::lock_guard lock(mutex);
    low = std::min(low, least), high = std::max(high, most);
  });
  const float scale = high == low ? 1 : (high - low) / 255;
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  auto* to = call.outputs[0].as<uint8_t>();
  share_ranges(call.pool, x.elements(), 1024, 1, [&](int64_t begin, int64_t end, int) {
    code_loops(isa).u8.quantize(from + begin, end - begin, scale, zero, to + begin);
  });
  *call.outputs[1].as<float>() = scale;
  *call.outputs[2].as<uint8_t>() = static_cast<uint8_t>(zero);
  return {};
}

template <Isa isa>
void add_codes(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "QuantizeLinear",
              .dtypes = "f32",
              .accepts = accepts_quantize,
              .prepare = prepare_scales,
              .run = run_quantize<isa>});
  add_kernel(table, isa,
             {.op = "DequantizeLinear",
              .dtypes = "u8, i8",
              .accepts = accepts_dequantize,
              .prepare = prepare_scales,
              .run = run_dequantize<isa>});
  add_kernel(table, isa, {.op = "DynamicQuantizeLinear", .dtypes = "f32", .run = run_dynamic_quantize<isa>});
}

}  // namespace

void add_quantize(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_codes<Isa::avx2>(table);
  if (isa == Isa::avx512) add_codes<Isa::avx512>(table);
}

}  // namespace plait::cpu

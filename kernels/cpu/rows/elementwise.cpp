// Elementwise ops of f32, with broadcasting, and casts between f32, bf16 and f16. The loops are in
// elementwise_loops.cpp.
#include <cstring>

#include "core/base/error.h"
#include "kernels/cpu/rows/broadcast.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/rows/register.h"

namespace plait::cpu {
namespace {

constexpr int64_t grain = broadcast_grain;  ///< elements: shares begin at multiples of it

/// Steps of a transcendental function or a division cost several of a move.
constexpr int64_t unary_cost(Unary f) { return f == Unary::relu || f == Unary::neg ? 1 : 8; }

template <Isa isa, Unary f>
KernelStatus run_unary(const KernelCall& call) {
  const float* x = call.inputs[0].as<float>();
  float* y = call.outputs[0].as<float>();
  share_ranges(call.pool, call.outputs[0].elements(), grain, unary_cost(f), [&](int64_t begin, int64_t end, int) {
    elementwise_loops(isa).unary[static_cast<int>(f)](x + begin, y + begin, end - begin);
  });
  return {};
}

template <Isa isa, Binary f>
KernelStatus run_binary(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const auto loop = elementwise_loops(isa).binary[static_cast<int>(f)];
  each_run(call.pool, a.shape, b.shape, y.shape, [&](const BroadcastRun& run) {
    loop(a.as<float>() + run.a, run.a_step, b.as<float>() + run.b, run.b_step, y.as<float>() + run.y, run.count);
  });
  return {};
}

bool is_real(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

bool accepts_cast(const NodeInfo& node) { return is_real(node.inputs[0].dtype) && is_real(node.outputs[0].dtype); }

template <Isa isa>
KernelStatus run_cast(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const ElementwiseLoops& loops = elementwise_loops(isa);
  const int64_t from_size = dtype_bits(x.dtype) / 8, to_size = dtype_bits(y.dtype) / 8;
  share_ranges(call.pool, y.elements(), grain, 1, [&](int64_t begin, int64_t end, int) {
    float wide[grain];
    for (int64_t i = begin; i < end; i += grain) {
      const int64_t n = std::min(grain, end - i);
      const uint8_t* from = x.as<uint8_t>() + i * from_size;
      uint8_t* to = y.as<uint8_t>() + i * to_size;
      if (x.dtype == y.dtype) {
        memcpy(to, from, static_cast<size_t>(n * to_size));
        continue;
      }
      float* middle = y.dtype == DType::f32 ? reinterpret_cast<float*>(to) : wide;
      if (x.dtype == DType::bf16) loops.widen_bf16(from, middle, n);
      else if (x.dtype == DType::f16) loops.widen_f16(from, middle, n);
      else memcpy(middle, from, static_cast<size_t>(n) * sizeof(float));
      if (y.dtype == DType::bf16) loops.narrow_bf16(middle, to, n);
      else if (y.dtype == DType::f16) loops.narrow_f16(middle, to, n);
    }
  });
  return {};
}

bool is_narrow(DType dtype) {
  return dtype == DType::boolean || dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i32 ||
         dtype == DType::i64;
}
bool accepts_widening(const NodeInfo& node) {
  return is_narrow(node.inputs[0].dtype) && node.outputs[0].dtype == DType::f32;
}

/// Bools and integers as f32, rounded to nearest even.
KernelStatus run_widening(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  auto* y = call.outputs[0].as<float>();
  share_ranges(call.pool, x.elements(), grain, 1, [&](int64_t begin, int64_t end, int) {
    auto widen = [&]<class T>(const T* from) {
      for (int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(from[i]);
    };
    if (x.dtype == DType::i64) widen(x.as<int64_t>());
    else if (x.dtype == DType::i32) widen(x.as<int32_t>());
    else if (x.dtype == DType::i8) widen(x.as<int8_t>());
    else if (x.dtype == DType::u8) widen(x.as<uint8_t>());
    else
      for (int64_t i = begin; i < end; ++i) y[i] = x.as<uint8_t>()[i] != 0;
  });
  return {};
}

bool accepts_f32(const NodeInfo& node) { return is_f32(node, 0) && (node.inputs.size() < 2 || is_f32(node, 1)); }
bool accepts_two(const NodeInfo& node) { return node.inputs.size() == 2 && accepts_f32(node); }
bool accepts_gelu(const NodeInfo& node) {
  return is_f32(node, 0) && node.attributes.string("approximate", "none") == "none";
}
bool accepts_gelu_tanh(const NodeInfo& node) {
  return is_f32(node, 0) && node.attributes.string("approximate", "none") == "tanh";
}
bool accepts_swish(const NodeInfo& node) { return is_f32(node, 0) && node.attributes.real("alpha", 1) == 1; }

template <Isa isa, Unary f>
void add_unary(KernelTable& table, const char* op, bool (*accepts)(const NodeInfo&) = accepts_f32) {
  add_kernel(table, isa, {.op = op, .dtypes = "f32", .accepts = accepts, .run = run_unary<isa, f>, .in_place = 0});
}
template <Isa isa, Binary f>
void add_binary(KernelTable& table, const char* op, bool (*accepts)(const NodeInfo&) = accepts_f32) {
  add_kernel(table, isa, {.op = op, .dtypes = "f32", .accepts = accepts, .run = run_binary<isa, f>, .in_place = 0});
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_unary<isa, Unary::exp>(table, "Exp");
  add_unary<isa, Unary::tanh>(table, "Tanh");
  add_unary<isa, Unary::sigmoid>(table, "Sigmoid");
  add_unary<isa, Unary::erf>(table, "Erf");
  add_unary<isa, Unary::gelu>(table, "Gelu", accepts_gelu);
  add_unary<isa, Unary::gelu_tanh>(table, "Gelu", accepts_gelu_tanh);
  add_unary<isa, Unary::silu>(table, "Swish", accepts_swish);
  add_unary<isa, Unary::relu>(table, "Relu");
  add_unary<isa, Unary::sqrt>(table, "Sqrt");
  add_unary<isa, Unary::neg>(table, "Neg");
  add_unary<isa, Unary::abs>(table, "Abs");
  add_unary<isa, Unary::reciprocal>(table, "Reciprocal");
  add_binary<isa, Binary::add>(table, "Add");
  add_binary<isa, Binary::add>(table, "plait.Accumulate");
  add_binary<isa, Binary::sub>(table, "Sub");
  add_binary<isa, Binary::mul>(table, "Mul");
  add_binary<isa, Binary::div>(table, "Div");
  add_binary<isa, Binary::max>(table, "Max", accepts_two);
  add_binary<isa, Binary::min>(table, "Min", accepts_two);
  add_binary<isa, Binary::prelu>(table, "PRelu");
  add_kernel(table, isa, {.op = "Cast", .dtypes = "f32|bf16|f16", .accepts = accepts_cast, .run = run_cast<isa>});
  add_kernel(table, isa,
             {.op = "Cast", .dtypes = "bool|u8|i8|i32|i64 to f32", .accepts = accepts_widening, .run = run_widening});
}

}  // namespace

void add_elementwise(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu

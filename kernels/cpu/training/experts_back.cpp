// plait.ExpertsBack: gathers the rows of each expert, recomputes the products of both its layers and computes their
// gradients, expert by expert; the arithmetic is that of Linear in training. Contributions to a token are added in
// the order of experts, for any number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/cpu/linear/experts.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/training/training_loops.h"
#include "kernels/cpu/linear/unpacked_rows.h"

namespace plait::cpu {
namespace {

/// Results, in the schema's order.
enum Result : size_t { d_x, d_shares, d_gate, d_bias = 5 };

using Slope = void (*)(const float* x, const float* dy, float* y, int64_t n);
/// Derivative of the activation; null if it is 1.
Slope derivative_of(const TrainingLoops& loops, Unary activation) {
  auto of = [&](Derivative which) { return loops.unary_back[static_cast<int>(which)]; };
  switch (activation) {
    case Unary::silu: return of(Derivative::silu);
    case Unary::gelu: return of(Derivative::gelu);
    case Unary::gelu_tanh: return of(Derivative::gelu_tanh);
    case Unary::relu: return of(Derivative::relu);
    default: return nullptr;
  }
}

/// Rows of an expert per chunk.
constexpr int64_t chunk_rows = 512;

/// Scratch, in the order of its parts: slots by expert, rows of x and dy, four arrays of hidden size, gradients of x,
/// a bias and a row buffer, weights of one expert as floats, and product scratch.
struct BackScratch {
  BackScratch(Isa isa, const ExpertsOperands& all, const ExpertsSizes& s, int threads)
      : rows(std::min(s.slots, chunk_rows)),
        order(align(8 * s.slots)),
        of_x(align(4 * rows * s.h)),
        of_y(align(4 * rows * s.o)),
        hidden(align(4 * rows * s.f)),
        bias(align(4 * std::max(s.f, s.o)) * 2) {
    const GemmTiles& tiles = gemm_tiles(isa);
    for (size_t which : {in_gate, in_up, in_down})
      if (const Weight w = all.weight(which, 0); w.present() && w.is_blocked) {
        const int64_t k = which == in_down ? s.f : s.h;
        weights = std::max(weights, align(4 * w.n * k));
        unpacker = std::max(unpacker, RowUnpacker(isa, w.blocked, k).bytes());
      }
    for (const auto& [m, k] : {std::pair(rows, s.h), {rows, s.f}, {rows, s.o}, {s.f, rows}, {s.o, rows}})
      products = std::max(products, align(GemmWorkspace(tiles, m, k).bytes(threads)));
  }
  int64_t bytes(int threads) const {
    return order + 2 * of_x + of_y + 4 * hidden + bias + weights + threads * unpacker + products;
  }
  int64_t rows, order, of_x, of_y, hidden, bias, weights = 0, unpacker = 0, products = 0;
};

template <Isa isa>
class Back {
 public:
  Back(const KernelCall& call, const ExpertsOperands& all)
      : call_(call), all_(all), s_(all), scratch_(isa, all, s_, call.pool.size()) {
    std::byte* next = call.scratch.data();
    auto take = [&](int64_t bytes) { return std::exchange(next, next + bytes); };
    order_ = reinterpret_cast<int64_t*>(take(scratch_.order));
    for (float** one : {&x_, &dx_}) *one = reinterpret_cast<float*>(take(scratch_.of_x));
    dy_ = reinterpret_cast<float*>(take(scratch_.of_y));
    for (float** one : {&gate_, &up_, &hidden_, &dhidden_}) *one = reinterpret_cast<float*>(take(scratch_.hidden));
    bias_ = reinterpret_cast<float*>(take(scratch_.bias));
    weights_ = reinterpret_cast<float*>(take(scratch_.weights));
    unpacker_ = take(scratch_.unpacker * call.pool.size());
    products_ = next;
  }

  KernelStatus run() {
    for (int64_t slot = 0; slot < s_.slots; ++slot)
      if (!all_.state.experts.contains(number_of(slot), s_.e))
        return {KernelCode::index_out_of_range, in_experts + 1, number_of(slot)};
    for (const TensorView& result : call_.outputs)
      if (result.present()) std::memset(result.data, 0, static_cast<size_t>(result.bytes()));
    for (int64_t expert = 0; expert < s_.e; ++expert) {
      int64_t count = 0;
      for (int64_t slot = 0; slot < s_.slots; ++slot)
        if (all_.state.experts.place(number_of(slot), s_.e) == expert) order_[count++] = slot;
      for (int64_t begin = 0; begin < count; begin += scratch_.rows)
        run_rows(expert, order_ + begin, std::min(scratch_.rows, count - begin));
    }
    return {};
  }

 private:
  int64_t number_of(int64_t slot) const {
    const TensorView& experts = all_.at[in_experts];
    return experts.dtype == DType::i64 ? experts.as<int64_t>()[slot] : experts.as<int32_t>()[slot];
  }
  float* result(size_t k, int64_t at) const {
    return k < call_.outputs.size() && call_.outputs[k].present() ? call_.outputs[k].as<float>() + at : nullptr;
  }

  /// The weight as the right side of a product, as floats if it is quantised; valid until the next call.
  GemmRight right(size_t which, int64_t expert, bool transposed) {
    const Weight w = all_.weight(which, expert);
    const int64_t k = which == in_down ? s_.f : s_.h;
    if (!w.is_blocked) return {w.data, w.dtype, k, transposed};
    RowUnpacker(isa, w.blocked, k).unpack(call_.pool, 0, w.n, weights_, unpacker_);
    return {reinterpret_cast<const uint8_t*>(weights_), DType::f32, k, transposed};
  }
  void multiply(const GemmLeft& a, const GemmRight& b, int64_t m, int64_t n, int64_t k, float* y, bool adds) {
    run_gemm(call_.pool, gemm_tiles(isa), {a, b, m, n, k, y, n, adds}, products_);
  }
  /// A bias of the expert as floats; null if there is none.
  const float* bias(size_t which, int64_t expert) {
    const uint8_t* from = all_.bias(which, expert);
    if (!from) return nullptr;
    const int64_t n = which == in_down ? s_.o : s_.f;
    std::memset(bias_, 0, static_cast<size_t>(4 * n));
    add_bias(loops_, from, all_.bias_dtype(which), 0, 1, n, bias_, n, bias_ + std::max(s_.f, s_.o));
    return bias_;
  }
  /// y = x w^T + bias.
  void forward(size_t which, int64_t expert, int64_t rows, float* y) {
    multiply({x_, s_.h, false}, right(which, expert, true), rows, s_.f, s_.h, y, false);
    if (const float* shift = bias(which, expert))
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < s_.f; ++j) y[i * s_.f + j] += shift[j];
  }

  void run_rows(int64_t expert, const int64_t* slots, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(x_ + i * s_.h, all_.at[in_x].as<float>() + slots[i] / s_.k * s_.h, static_cast<size_t>(4 * s_.h));
      std::memcpy(dy_ + i * s_.o, call_.inputs[0].as<float>() + slots[i] / s_.k * s_.o,
                  static_cast<size_t>(4 * s_.o));
    }
    forward(in_gate, expert, rows, gate_);
    if (all_.gated()) forward(in_up, expert, rows, up_);
    multiply({dy_, s_.o, false}, right(in_down, expert, false), rows, s_.f, s_.o, dhidden_, false);
    const float* shift = bias(in_down, expert);
    share_ranges(call_.pool, rows, 1, 32 * s_.f, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) activate_back(i, slots[i], shift);
    });
    if (float* dx = result(d_x, 0)) {
      multiply({gate_, s_.f, false}, right(in_gate, expert, false), rows, s_.h, s_.f, dx_, false);
      if (all_.gated()) multiply({up_, s_.f, false}, right(in_up, expert, false), rows, s_.h, s_.f, dx_, true);
      for (int64_t i = 0; i < rows; ++i) {
        float* to = dx + slots[i] / s_.k * s_.h;
        loops_.binary[static_cast<int>(Binary::add)](to, 1, dx_ + i * s_.h, 1, to, s_.h);
      }
    }
    give(in_gate, expert, gate_, s_.f, x_, s_.h, rows);
    if (all_.gated()) give(in_up, expert, up_, s_.f, x_, s_.h, rows);
    give(in_down, expert, dy_, s_.o, hidden_, s_.f, rows);
  }

  /// The gradient of a weight and its bias: dy^T x, and the sum of dy.
  void give(size_t which, int64_t expert, const float* dy, int64_t n, const float* x, int64_t k, int64_t rows) {
    if (float* dw = result(d_gate + which - in_gate, expert * n * k))
      multiply({dy, n, true}, {reinterpret_cast<const uint8_t*>(x), DType::f32, k}, n, k, rows, dw, true);
    if (float* sum = result(d_bias + which - in_gate, expert * n))
      for (int64_t i = 0; i < rows; ++i) loops_.binary[static_cast<int>(Binary::add)](sum, 1, dy + i * n, 1, sum, n);
  }

  /// Row i: replaces gate and up by their gradients and computes hidden; dy is scaled by the share. `shift`: the bias
  /// after hidden, or null.
  void activate_back(int64_t i, int64_t slot, const float* shift) {
    const ExpertsState& state = all_.state;
    const float share = all_.at[in_shares].as<float>()[slot], limit = state.limit, inverse = 1 / state.alpha;
    float *gate = gate_ + i * s_.f, *up = all_.gated() ? up_ + i * s_.f : nullptr, *hidden = hidden_ + i * s_.f,
          *dy = dy_ + i * s_.o;
    const float* dhidden = dhidden_ + i * s_.f;
    auto bent = [&](float x) { return (limit > 0 ? std::clamp(x, -limit, limit) : x) + state.beta; };
    for (int64_t j = 0; j < s_.f; ++j) {
      const bool beyond = limit > 0 && gate[j] > limit;
      hidden[j] = state.alpha * (beyond ? limit : gate[j]);
      gate[j] = beyond ? 0 : share * dhidden[j] * (up ? bent(up[j]) : 1);
    }
    if (const auto derivative = derivative_of(training_loops(loops_of(isa)), state.activation))
      derivative(hidden, gate, gate, s_.f);
    loops_.unary[static_cast<int>(state.activation)](hidden, hidden, s_.f);
    double whole = 0;
    for (int64_t j = 0; j < s_.f; ++j) {
      hidden[j] *= inverse;
      if (up) {
        const float active = hidden[j], was = up[j];
        hidden[j] *= bent(was);
        up[j] = limit > 0 && std::fabs(was) > limit ? 0 : share * dhidden[j] * active;
      }
      whole += double{dhidden[j]} * hidden[j];
    }
    for (int64_t j = 0; shift && j < s_.o; ++j) whole += double{dy[j]} * shift[j];
    if (float* dshare = result(d_shares, slot)) *dshare = static_cast<float>(whole);
    loops_.binary[static_cast<int>(Binary::mul)](dy, 1, &share, 0, dy, s_.o);
  }

  const KernelCall& call_;
  const ExpertsOperands& all_;
  const ExpertsSizes s_;
  const BackScratch scratch_;
  const ElementwiseLoops& loops_ = elementwise_loops(loops_of(isa));
  int64_t* order_ = nullptr;  ///< slots of the expert at hand
  float *x_ = nullptr, *dx_ = nullptr, *dy_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *hidden_ = nullptr,
        *dhidden_ = nullptr, *bias_ = nullptr, *weights_ = nullptr;
  std::byte *unpacker_ = nullptr, *products_ = nullptr;
};

/// Operands after dy.
template <Isa isa>
int64_t scratch_bytes(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  const ExpertsOperands all(*static_cast<const ExpertsState*>(state), inputs.subspan(1));
  return BackScratch(isa, all, ExpertsSizes(all), threads).bytes(threads);
}

template <Isa isa>
KernelStatus run(const KernelCall& call) {
  const ExpertsOperands all(*static_cast<const ExpertsState*>(call.state), call.inputs.subspan(1));
  const ExpertsSizes s(all);
  if (const int32_t slot = misfit(all, s)) return {KernelCode::bad_value, slot + 1, all.at[slot].shape.back(1)};
  if (call.inputs[0].elements() != s.t * s.o) return {KernelCode::bad_value, 0, call.inputs[0].elements()};
  return Back<isa>(call, all).run();
}

template <Isa isa>
bool accepts(const NodeInfo& node) {
  if (rounds_x(isa) && node.attributes.integer("round_x", 0) != 1) return false;
  const std::span<const OperandInfo> operands = node.inputs.subspan(1);
  if (node.inputs[0].dtype != DType::f32 || !accepts_experts(operands)) return false;
  auto is_taken = [&](size_t which) {  // products of bf16 numbers do not take f16
    return is_absent(operands, which) || !rounds_x(isa) || operands[which].dtype != DType::f16;
  };
  return is_taken(in_gate) && is_taken(in_up) && is_taken(in_down) &&
         std::all_of(node.outputs.begin(), node.outputs.end(),
                     [](const OperandInfo& out) { return out.dtype == DType::f32 || out.dtype == DType::none; });
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.ExpertsBack",
              .dtypes = rounds_x(isa) ? "f32 x f32|bf16|2 to 8 bits, round_x" : "f32 x f32|bf16|f16|2 to 8 bits",
              .accepts = accepts<isa>,
              .prepare = prepare_experts,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run<isa>});
}

}  // namespace

void add_experts_back(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu

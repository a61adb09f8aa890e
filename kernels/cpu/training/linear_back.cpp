// Linears of training (plait.Linear with attribute many_rows), plait.LinearBack and plait.LinearWeight, the gradients
// of their x and w, and plait.AddLinear, one of the first two with a sum: packed products, in f32, or of operands
// rounded to bf16 if the Linear rounds its own. Quantised weights are unpacked by strips of rows.
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/linear/unpacked_rows.h"

namespace plait::cpu {
namespace {

constexpr bool rounds(Isa isa) { return isa >= Isa::avx512_bf16; }

bool is_wanted(const NodeInfo& node, Isa isa) {
  return node.inputs[0].dtype == DType::f32 && (!rounds(isa) || node.attributes.integer("round_x", 0) == 1);
}

/// A weight is followed by the scales of a quantised one, or a bias.
template <Isa isa>
bool accepts_back(const NodeInfo& node) {
  const OperandInfo& w = node.inputs[1];
  const bool known = w.dtype == DType::bf16 || w.dtype == DType::f32 || (!rounds(isa) && w.dtype == DType::f16);
  return is_wanted(node, isa) && w.rank == 2 && known &&
         std::all_of(node.inputs.begin() + 2, node.inputs.end(),
                     [](const OperandInfo& more) { return more.dtype == DType::none; });
}
template <Isa isa>
bool accepts_forward(const NodeInfo& node) {
  return accepts_back<isa>(node) && node.attributes.integer("many_rows", 0) == 1;
}

template <Isa isa>
bool accepts_weight(const NodeInfo& node) {
  return is_wanted(node, isa) && node.inputs[1].dtype == DType::f32;
}

int64_t rows_of(const TensorView& x) { return x.shape.elements(0, x.shape.rank() - 1); }

template <Isa isa>
int64_t product_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                        int threads) {
  return GemmWorkspace(gemm_tiles(isa), rows_of(inputs[0]), inputs[0].shape.back(1)).bytes(threads);
}

/// x [..., k], w [n, k] -> y [..., n].
template <Isa isa>
KernelStatus run_forward(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1];
  const int64_t n = w.shape[0], k = w.shape[1];
  run_gemm(call.pool, gemm_tiles(isa),
           {{x.as<float>(), k, false},
            {w.as<const uint8_t>(), w.dtype, k, true},
            rows_of(x),
            n,
            k,
            call.outputs[0].as<float>(),
            n},
           call.scratch.data());
  return {};
}

/// dy [..., n], w [n, k] -> dx [..., k].
template <Isa isa>
KernelStatus run_back(const KernelCall& call) {
  const TensorView &dy = call.inputs[0], &w = call.inputs[1];
  const int64_t n = w.shape[0], k = w.shape[1];
  run_gemm(call.pool, gemm_tiles(isa),
           {{dy.as<float>(), n, false},
            {w.as<const uint8_t>(), w.dtype, k},
            rows_of(dy),
            k,
            n,
            call.outputs[0].as<float>(),
            k},
           call.scratch.data());
  return {};
}

struct AddState : KernelState {
  bool back = false;
};

std::shared_ptr<const KernelState> prepare_add(const NodeInfo& node) {
  auto state = std::make_shared<AddState>();
  state->back = node.attributes.integer("back", 0) != 0;
  return state;
}

/// After the sum like LinearBack's operands.
template <Isa isa>
bool accepts_add(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 &&
         accepts_back<isa>({node.op, node.attributes, node.inputs.subspan(1), node.outputs});
}

template <Isa isa>
int64_t add_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                    int threads) {
  return product_scratch<isa>(state, inputs.subspan(1), outputs, threads);
}

/// sum [..., n], x [..., k], w [n, k] -> sum + x w^T; `back`: w [k, n] -> sum + x w.
template <Isa isa>
KernelStatus run_add(const KernelCall& call) {
  const TensorView &x = call.inputs[1], &w = call.inputs[2];
  const bool transposed = !static_cast<const AddState*>(call.state)->back;
  const int64_t n = w.shape[transposed ? 0 : 1], k = w.shape[transposed ? 1 : 0];
  run_gemm(call.pool, gemm_tiles(isa),
           {.a = {x.as<float>(), k, false},
            .b = {w.as<const uint8_t>(), w.dtype, w.shape[1], transposed},
            .m = rows_of(x),
            .n = n,
            .k = k,
            .y = call.outputs[0].as<float>(),
            .ldy = n,
            .addend = call.inputs[0].as<float>(),
            .loops = &elementwise_loops(loops_of(isa))},
           call.scratch.data());
  return {};
}

struct QuantisedState : KernelState {
  float zero = 0;
};

std::shared_ptr<const KernelState> prepare_quantised(const NodeInfo& node) {
  auto state = std::make_shared<QuantisedState>();
  state->zero = static_cast<float>(node.attributes.integer("zero", 0));
  return state;
}

/// w followed by scales and zero points, from operand `scales` on.
template <Isa isa, size_t scales>
bool accepts_quantised(const NodeInfo& node) {
  return is_wanted(node, isa) && node.inputs[1].rank == 3 && is_weight(node, 1, scales, scales + 1);
}
template <Isa isa>
bool accepts_quantised_forward(const NodeInfo& node) {
  return accepts_quantised<isa, 3>(node) && is_absent(node, 2) && node.attributes.integer("many_rows", 0) == 1;
}

/// x [..., inner] and a quantised w [n, c, l], strips of whose rows are unpacked into the scratch, after product
/// scratch.
struct QuantisedStrips {
  QuantisedStrips(Isa isa, const KernelState* state, std::span<const TensorView> inputs, size_t scales, bool back)
      : m(rows_of(inputs[0])),
        n(inputs[1].shape[0]),
        k(inputs[1].shape[1] * inputs[1].shape[2]),
        rows(std::min<int64_t>(n, 512)),
        unpacker(isa,
                 weight_of(inputs[1], inputs[scales], inputs.size() > scales + 1 ? inputs[scales + 1] : TensorView{},
                           static_cast<const QuantisedState*>(state)->zero)
                     .blocked,
                 k),
        workspace(gemm_tiles(isa), m, back ? rows : k) {}
  int64_t products(int threads) const { return align(workspace.bytes(threads)); }
  int64_t strip() const { return align(4 * rows * k); }
  int64_t bytes(int threads) const { return products(threads) + strip() + threads * unpacker.bytes(); }

  /// Calls product(begin, rows, w) for all strips w [rows, k] of floats.
  template <class Product>
  void for_each(const KernelCall& call, Product product) const {
    const int threads = call.pool.size();
    auto* strip_rows = reinterpret_cast<float*>(call.scratch.data() + products(threads));
    for (int64_t begin = 0; begin < n; begin += rows) {
      const int64_t count = std::min(rows, n - begin);
      unpacker.unpack(call.pool, begin, count, strip_rows, call.scratch.data() + products(threads) + strip());
      product(begin, count, reinterpret_cast<const uint8_t*>(strip_rows));
    }
  }

  const int64_t m, n, k, rows;
  const RowUnpacker unpacker;
  const GemmWorkspace workspace;
};

template <Isa isa, size_t scales, bool back>
int64_t quantised_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                          int threads) {
  return QuantisedStrips(isa, state, inputs, scales, back).bytes(threads);
}

/// x [..., k], w [n, c, l], scales, zeros? -> y [..., n]: each strip of w makes columns of y. The last block may be
/// larger than what x uses.
template <Isa isa>
KernelStatus run_quantised_forward(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const QuantisedStrips of(isa, call.state, call.inputs, 3, false);
  const int64_t inner = x.shape.back(1);
  if (inner > of.k) return {KernelCode::bad_value, 1, call.inputs[1].shape[1]};
  of.for_each(call, [&](int64_t begin, int64_t rows, const uint8_t* w) {
    run_gemm(call.pool, gemm_tiles(isa),
             {{x.as<float>(), inner, false},
              {w, DType::f32, of.k, true},
              of.m,
              rows,
              inner,
              call.outputs[0].as<float>() + begin,
              of.n},
             call.scratch.data());
  });
  return {};
}

/// dy [..., n], w [n, c, l], scales, zeros? -> dx [..., c l]: a sum over the strips of w.
template <Isa isa>
KernelStatus run_quantised_back(const KernelCall& call) {
  const QuantisedStrips of(isa, call.state, call.inputs, 2, true);
  of.for_each(call, [&](int64_t begin, int64_t rows, const uint8_t* w) {
    run_gemm(call.pool, gemm_tiles(isa),
             {{call.inputs[0].as<float>() + begin, of.n, false},
              {w, DType::f32, of.k},
              of.m,
              of.k,
              rows,
              call.outputs[0].as<float>(),
              of.k,
              begin > 0},
             call.scratch.data());
  });
  return {};
}

template <Isa isa>
int64_t weight_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                       int threads) {
  return GemmWorkspace(gemm_tiles(isa), inputs[0].shape.back(1), rows_of(inputs[0])).bytes(threads);
}

/// dy [..., n], x [..., k] -> dw [n, k] = dy^T x over all rows.
template <Isa isa>
KernelStatus run_weight(const KernelCall& call) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1];
  const int64_t n = dy.shape.back(1), k = x.shape.back(1);
  run_gemm(call.pool, gemm_tiles(isa),
           {{dy.as<float>(), n, true},
            {x.as<const uint8_t>(), DType::f32, k},
            n,
            k,
            rows_of(dy),
            call.outputs[0].as<float>(),
            k},
           call.scratch.data());
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  constexpr const char* dtypes = rounds(isa) ? "f32 x f32|bf16, round_x" : "f32 x f32|bf16|f16";
  constexpr const char* quantised = rounds(isa) ? "f32 x 2 to 8 bits, round_x" : "f32 x 2 to 8 bits";
  add_kernel(table, isa,
             {.op = "plait.Linear",
              .dtypes = dtypes,
              .accepts = accepts_forward<isa>,
              .scratch_bytes = product_scratch<isa>,
              .run = run_forward<isa>});
  add_kernel(table, isa,
             {.op = "plait.LinearBack",
              .dtypes = dtypes,
              .accepts = accepts_back<isa>,
              .scratch_bytes = product_scratch<isa>,
              .run = run_back<isa>});
  add_kernel(table, isa,
             {.op = "plait.AddLinear",
              .dtypes = dtypes,
              .accepts = accepts_add<isa>,
              .prepare = prepare_add,
              .scratch_bytes = add_scratch<isa>,
              .run = run_add<isa>});
  if constexpr (rounds(isa))  // in f32 linear.cpp is faster, which unpacks blocks into L2
    add_kernel(table, isa,
               {.op = "plait.Linear",
                .dtypes = quantised,
                .accepts = accepts_quantised_forward<isa>,
                .prepare = prepare_quantised,
                .scratch_bytes = quantised_scratch<isa, 3, false>,
                .run = run_quantised_forward<isa>});
  add_kernel(table, isa,
             {.op = "plait.LinearBack",
              .dtypes = quantised,
              .accepts = accepts_quantised<isa, 2>,
              .prepare = prepare_quantised,
              .scratch_bytes = quantised_scratch<isa, 2, true>,
              .run = run_quantised_back<isa>});
  add_kernel(table, isa,
             {.op = "plait.LinearWeight",
              .dtypes = rounds(isa) ? "f32, round_x" : "f32",
              .accepts = accepts_weight<isa>,
              .scratch_bytes = weight_scratch<isa>,
              .run = run_weight<isa>});
}

}  // namespace

void add_linear_back(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu

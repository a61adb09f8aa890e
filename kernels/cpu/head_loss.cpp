// plait.HeadLoss: a head, its loss and their gradients, each product made once. Products are packed, as those of Linear in training.
//
// Where w is trained, all logits of some rows stand in memory, for its gradient wants their sums. Where it is not, all rows
// meet w block by block, with sums that go by the largest logit so far: what was added to dx before shrinks when a larger one
// comes (as in online softmax, Milakov and Gimelshein 2018), and each row is divided by its sum at the end.
#include <cmath>
#include <cstring>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/linear_blocks.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/share.h"

namespace plait::cpu {
namespace {

/// All logits of a block of rows take about so many bytes, with enough rows to pay for reading w.
constexpr int64_t logits_bytes = 64 << 20;
/// Rows of w of a block where w is not trained.
constexpr int64_t block_columns = 1024;

/// How a call is cut, and its scratch: logits; for each row its largest one, sum, the label's, and by how much dx shrinks;
/// what the products of logits need, and those of both gradients; and for each worker a row of w.
struct LossRoom {
  LossRoom(Isa isa, const HeadCall& call, bool trains_w, int threads)
      : rows(std::min(call.m, trains_w ? std::clamp<int64_t>(logits_bytes / 4 / std::max<int64_t>(call.v, 1), 64, 512)
                                       : gemm_rows)),
        columns(trains_w ? call.v : std::min(call.v, block_columns)),
        stride(columns + 16),
        logits(align(4 * rows * stride)),
        sums(align(4 * rows)),
        forward(align(GemmRoom(gemm_tiles(isa), rows, call.k).bytes(threads))),
        back(align(GemmRoom(gemm_tiles(isa), rows, columns).bytes(threads))),
        row(align(4 * call.k)) {
    if (trains_w) back = std::max(back, align(GemmRoom(gemm_tiles(isa), call.v, rows).bytes(threads)));
  }
  int64_t bytes(int threads) const { return logits + 4 * sums + forward + back + row * threads; }
  int64_t rows, columns;
  int64_t stride;  ///< of logits: no power of 2, for whose rows want the same lines of a cache
  int64_t logits, sums, forward, back, row;
};

template <Isa isa>
class Loss {
 public:
  Loss(const KernelCall& call, const HeadCall& of, float* dw)
      : call_(call),
        of_(of),
        room_(isa, of, dw != nullptr, call.pool.size()),
        dloss_(call.inputs[3].as<float>()),
        losses_(call.outputs[0].as<float>()),
        dx_(call.outputs[1].as<float>()),
        dw_(dw),
        logits_(reinterpret_cast<float*>(call.scratch.data())),
        most_(reinterpret_cast<float*>(call.scratch.data() + room_.logits)),
        sum_(most_ + room_.sums / 4),
        picked_(sum_ + room_.sums / 4),
        shrinks_(picked_ + room_.sums / 4),
        forward_(reinterpret_cast<std::byte*>(shrinks_) + room_.sums),
        back_(forward_ + room_.forward),
        rows_of_w_(reinterpret_cast<float*>(back_ + room_.back)) {}

  void run() {
    for (int64_t begin = 0; begin < of_.m; begin += room_.rows)
      run_rows(begin, std::min(room_.rows, of_.m - begin));
  }

 private:
  void run_rows(int64_t begin, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) most_[i] = -HUGE_VALF, sum_[i] = 0, picked_[i] = 0;
    for (int64_t j = 0; j < of_.v; j += room_.columns) {
      const int64_t columns = std::min(room_.columns, of_.v - j);
      multiply(begin, rows, j, columns);
      share_ranges(call_.pool, rows, 1, 16 * columns, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
          weigh(begin, i, j, columns);
          if (dw_) finish_logits(begin, i);
          else if (j > 0 && shrinks_[i] != 1) scale(dx_ + (begin + i) * of_.k, shrinks_[i], of_.k);
        }
      });
      add_products(begin, rows, j, columns);
    }
    share_ranges(call_.pool, rows, 1, 4 * of_.k, [&](int64_t first, int64_t last, int worker) {
      for (int64_t i = first; i < last; ++i) {
        const float whole = most_[i] + std::log(sum_[i]);
        losses_[begin + i] = whole - picked_[i];
        if (!dw_) finish_dx(begin, i, rows_of_w_ + worker * room_.row / 4);
      }
    });
  }

  GemmRight weight(bool turned) const { return {of_.w.as<const uint8_t>(), of_.w.dtype, of_.k, turned}; }

  /// logits [rows, columns] = x w^T, of rows [j, j + columns) of w.
  void multiply(int64_t begin, int64_t rows, int64_t j, int64_t columns) {
    const int64_t k = of_.k;
    run_gemm(call_.pool, gemm_tiles(isa),
             {{of_.x + begin * k, k, false}, weight(true).from(0, j), rows, columns, k, logits_, room_.stride, false,
              j > 0 && k <= gemm_depth},
             forward_);
  }

  /// A row of products becomes e^(logit - most) d logit / d product.
  void weigh(int64_t begin, int64_t i, int64_t j, int64_t columns) {
    float* row = logits_ + i * room_.stride;
    const float before = most_[i];
    const int64_t label = of_.place(begin + i) - j;
    loops_.to_logits(row, columns, of_.state.scale);
    if (of_.place(begin + i) >= 0 && label >= 0 && label < columns) picked_[i] = row[label];
    loops_.weigh(row, columns, of_.state.scale, most_[i], sum_[i]);
    shrinks_[i] = std::exp(before - most_[i]);
  }

  /// What the label's product changes of the loss by itself.
  float label_slope(int64_t begin, int64_t i) const {
    const LogitScale& scale = of_.state.scale;
    const float part = scale.cap != 0 ? picked_[i] / scale.cap : 0;
    return dloss_[begin + i] * scale.scale * (1 - part * part);
  }

  void scale(float* row, float factor, int64_t n) const {
    element_.binary[static_cast<int>(Binary::mul)](row, 1, &factor, 0, row, n);
  }

  /// All of a row's weighed logits become the changes of its products.
  void finish_logits(int64_t begin, int64_t i) {
    float* row = logits_ + i * room_.stride;
    scale(row, dloss_[begin + i] / sum_[i], of_.v);
    if (const int64_t label = of_.place(begin + i); label >= 0) row[label] -= label_slope(begin, i);
  }

  /// dx (+)= logits w, of rows [j, j + columns) of w; and dw.
  void add_products(int64_t begin, int64_t rows, int64_t j, int64_t columns) {
    const int64_t k = of_.k;
    run_gemm(call_.pool, gemm_tiles(isa),
             {{logits_, room_.stride, false}, weight(false).from(j, 0), rows, k, columns, dx_ + begin * k, k, j > 0},
             back_);
    if (!dw_) return;
    const GemmRight x{reinterpret_cast<const uint8_t*>(of_.x + begin * k), DType::f32, k};
    run_gemm(call_.pool, gemm_tiles(isa), {{logits_, room_.stride, true}, x, of_.v, k, rows, dw_, k, begin > 0}, back_);
  }

  /// A row of dx from the sum of all rows of w, each times its weight; `buffer` holds k floats.
  void finish_dx(int64_t begin, int64_t i, float* buffer) {
    const int64_t k = of_.k, label = of_.place(begin + i);
    float* row = dx_ + (begin + i) * k;
    scale(row, dloss_[begin + i] / sum_[i], k);
    if (label < 0) return;
    const uint8_t* w = of_.w.as<const uint8_t>() + label * k * dtype_bits(of_.w.dtype) / 8;
    if (of_.w.dtype == DType::bf16) element_.widen_bf16(w, buffer, k);
    else if (of_.w.dtype == DType::f16) element_.widen_f16(w, buffer, k);
    else std::memcpy(buffer, w, static_cast<size_t>(4 * k));
    scale(buffer, label_slope(begin, i), k);
    element_.binary[static_cast<int>(Binary::sub)](row, 1, buffer, 1, row, k);
  }

  const KernelCall& call_;
  const HeadCall& of_;
  const LossRoom room_;
  const LossLoops& loops_ = loss_loops(loops_of(isa));
  const ElementwiseLoops& element_ = elementwise_loops(loops_of(isa));
  const float* const dloss_;
  float *const losses_, *const dx_, *const dw_;
  float *const logits_, *const most_, *const sum_, *const picked_, *const shrinks_;
  std::byte *const forward_, *const back_;
  float* const rows_of_w_;
};

bool has_dw(std::span<const TensorView> outputs) { return outputs.size() > 2 && outputs[2].present(); }

template <Isa isa>
int64_t scratch_bytes(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                      int threads) {
  const HeadCall of(*static_cast<const HeadState*>(state), inputs);
  return LossRoom(isa, of, has_dw(outputs), threads).bytes(threads);
}

/// x, w, labels, dloss [...] -> losses [...], dx [..., k], dw? [v, k].
template <Isa isa>
KernelStatus run(const KernelCall& call) {
  const HeadCall of(*static_cast<const HeadState*>(call.state), call.inputs);
  if (!of.fits()) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  float* dw = has_dw(call.outputs) ? call.outputs[2].as<float>() : nullptr;
  if (dw && of.m == 0) std::memset(dw, 0, static_cast<size_t>(4 * of.v * of.k));
  Loss<isa>(call, of, dw).run();
  return {};
}

bool accepts_rounded(const NodeInfo& node) {
  return accepts_head(node) && node.inputs[1].dtype == DType::bf16 && node.attributes.integer("round_x", 0) == 1;
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.HeadLoss",
              .dtypes = rounds_x(isa) ? "f32 x bf16, round_x" : "f32 x f32|bf16|f16",
              .accepts = rounds_x(isa) ? accepts_rounded : accepts_head,
              .prepare = prepare_head,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run<isa>});
}

}  // namespace

void add_head_loss(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu

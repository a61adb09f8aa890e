// ONNX Attention (23 to 25) with the errata of 2026: is_causal counts from where the queries lie in their sequence.
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/heads.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct AttentionAttributes {
  explicit AttentionAttributes(const NodeInfo& node)
      : query_heads(node.attributes.integer("q_num_heads", 0)), key_heads(node.attributes.integer("kv_num_heads", 0)),
        causal(node.attributes.integer("is_causal", 0) != 0), scale(node.attributes.real("scale", 0)),
        softcap(node.attributes.real("softcap", 0)), left(node.attributes.integer("left_window_size", -1)),
        right(node.attributes.integer("right_window_size", -1)), mode(node.attributes.integer("qk_matmul_output_mode", 0)) {
    if (mode < 0 || mode > 3)
      throw Error(Code::bad_model, cat("Attention: qk_matmul_output_mode is ", mode, ", expected 0 to 3"));
  }
  int64_t query_heads, key_heads;  ///< of 3-D operands
  bool causal;
  double scale;    ///< 0: 1 / sqrt(d)
  double softcap;  ///< applied before the mask; 0: none
  int64_t left, right;  ///< how many keys before and after its own a query sees; -1: all
  int64_t mode;    ///< what output 3 holds: 0 scores, 1 after the soft cap, 2 after the mask, 3 probabilities
};

Heads heads_of(const TensorView& x, int64_t heads) {
  return x.shape.rank() == 4 ? heads_first(x.shape) : heads_last(x.shape, heads);
}

/// past [b, g, p, d]? and `fresh` together, as [b, g, p + s, d].
std::vector<double> joined(const TensorView& past, const TensorView& fresh, const Heads& heads) {
  int64_t p = past.present() ? past.shape[2] : 0, total = p + heads.s;
  std::vector<double> out(static_cast<size_t>(heads.b * heads.h * total * heads.d));
  for (int64_t i = 0; i < heads.b * heads.h; ++i) {
    double* to = out.data() + i * total * heads.d;
    if (p) load(past, i * p * heads.d, p * heads.d, to);
    for (int64_t t = 0; t < heads.s; ++t)
      load(fresh, heads.at(i / heads.h, i % heads.h, t), heads.d, to + (p + t) * heads.d);
  }
  return out;
}

/// One Attention call, its operands widened. Shapes: query [b, h, s, d], keys [b, g, n, d], values [b, g, n, e].
struct Problem {
  Problem(const KernelCall& call, const AttentionAttributes& attributes)
      : call(call), attributes(attributes), q(heads_of(call.inputs[0], attributes.query_heads)),
        k(heads_of(call.inputs[1], attributes.key_heads)), v(heads_of(call.inputs[2], attributes.key_heads)),
        y(heads_of(call.outputs[0], attributes.query_heads)), mask(input(call, 3)) {
    TensorView past_key = input(call, 4), past_value = input(call, 5);
    past = past_key.present() ? past_key.shape[2] : 0;
    n = past + k.s;
    scale = attributes.scale != 0 ? attributes.scale : 1 / std::sqrt(static_cast<double>(q.d));
    keys = joined(past_key, call.inputs[1], k);
    values = joined(past_value, call.inputs[2], v);
    if (input(call, 6).present()) lengths = to_ints(call.inputs[6]);
    if (mask.present()) {
      Shape target{q.b, q.h, q.s, mask.shape.back(1)};
      mask_at = broadcast_strides(mask.shape, target);
    }
  }

  /// Whether query i of batch b may see key j: the causal rule, the window and the padding.
  bool visible(int64_t b, int64_t i, int64_t j) const {
    int64_t offset = past;
    if (!lengths.empty()) {
      int64_t length = lengths[static_cast<size_t>(b)];
      if (j >= length) return false;
      if (!input(call, 4).present()) offset = length - q.s;
    }
    const int64_t behind = i + offset - j;
    if ((attributes.left >= 0 && behind > attributes.left) || (attributes.right >= 0 && -behind > attributes.right))
      return false;
    return !attributes.causal || behind >= 0;
  }

  /// What the mask adds to a score; keys behind its last column are masked.
  double bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!mask.present()) return 0;
    if (j >= mask.shape.back(1)) return -INFINITY;
    double value = load_one<double>(mask, b * mask_at[0] + h * mask_at[1] + i * mask_at[2] + j * mask_at[3]);
    return mask.dtype == DType::boolean ? (value != 0 ? 0 : -INFINITY) : value;
  }

  void keep(int64_t row, const std::vector<double>& scores, int64_t mode) const {
    if (mode == attributes.mode && output(call, 3).present()) store(call.outputs[3], row * n, n, scores.data());
  }

  /// One query's row of the output.
  void run_row(int64_t row) const {
    int64_t b = row / (q.h * q.s), h = row / q.s % q.h, i = row % q.s, g = h / (q.h / k.h);
    std::vector<double> query(static_cast<size_t>(q.d)), scores(static_cast<size_t>(n)),
        out(static_cast<size_t>(v.d));
    load(call.inputs[0], q.at(b, h, i), q.d, query.data());
    for (int64_t j = 0; j < n; ++j)
      scores[static_cast<size_t>(j)] = scale * dot(query.data(), keys.data() + ((b * k.h + g) * n + j) * k.d, q.d);
    keep(row, scores, 0);
    for (double& score : scores) score = soft_capped(score, attributes.softcap);
    keep(row, scores, 1);
    for (int64_t j = 0; j < n; ++j) {
      double& score = scores[static_cast<size_t>(j)];
      score = visible(b, i, j) ? score + bias(b, h, i, j) : -INFINITY;
    }
    keep(row, scores, 2);
    softmax_scores(scores);
    keep(row, scores, 3);
    for (int64_t j = 0; j < n; ++j) {
      const double* value = values.data() + ((b * v.h + g) * n + j) * v.d;
      double p = scores[static_cast<size_t>(j)];
      if (p == 0) continue;  // a masked key's value may be anything, even NaN
      for (int64_t e = 0; e < v.d; ++e) out[static_cast<size_t>(e)] += p * value[e];
    }
    store(call.outputs[0], y.at(b, h, i), v.d, out.data());
  }

  const KernelCall& call;
  const AttentionAttributes& attributes;
  Heads q, k, v, y;
  TensorView mask;
  Shape mask_at;
  int64_t past, n;
  double scale;
  std::vector<double> keys, values;
  std::vector<int64_t> lengths;  ///< nonpad_kv_seqlen, empty: none
};

/// Q, K, V, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen? -> Y, present_key?, present_value?, scores?.
KernelStatus attention(const KernelCall& call, const AttentionAttributes& attributes) {
  if (call.outputs[0].shape.rank() == 3 && (attributes.query_heads < 1 || attributes.key_heads < 1))
    return {KernelCode::bad_value, 0, attributes.query_heads};
  Problem problem(call, attributes);
  if (problem.k.h == 0 || problem.q.h % problem.k.h) return {KernelCode::bad_value, 1, problem.k.h};
  int64_t rows = problem.q.b * problem.q.h * problem.q.s;
  share(call.pool, rows, rows * problem.n * problem.q.d, [&](int64_t row) { problem.run_row(row); });
  if (output(call, 1).present()) store_all(call.outputs[1], problem.keys);
  if (output(call, 2).present()) store_all(call.outputs[2], problem.values);
  return {};
}

}  // namespace

void add_attention(KernelTable& table) { add<attention>(table, "Attention", floats); }

}  // namespace plait::reference

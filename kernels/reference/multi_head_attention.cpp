// com.microsoft.MultiHeadAttention (version 1): attention whose heads may be packed together, with a bias on its
// operands, a padding mask, a bias on its scores, and past keys and values.
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

/// The op's inputs by number.
enum Slot : int32_t { query, key, value, bias, padding, score_bias, past_key, past_value, past_length, indirection };

struct MultiHeadAttributes {
  explicit MultiHeadAttributes(const NodeInfo& node)
      : heads(node.attributes.integer("num_heads")),
        scale(node.attributes.real("scale", 0)),
        masked(node.attributes.real("mask_filter_value", -10000)),
        causal(node.attributes.integer("unidirectional", 0) != 0) {
    if (heads < 1) throw Error(Code::bad_model, cat(node.op, ": num_heads is ", heads));
    for (size_t slot : {past_length, indirection})
      if (slot < node.inputs.size() && node.inputs[slot].dtype != DType::none)
        throw Error(Code::unsupported,
                    cat(node.op, ": input ", slot, " belongs to a cache that present shares with past"),
                    "export the model without past_present_share_buffer");
  }
  int64_t heads;
  double scale;   ///< 0: 1 / sqrt(d)
  double masked;  ///< added to the scores of padding
  bool causal;
};

/// One of query, key and value inside an operand. Packed operands [b, s, h, parts, d] have several: `part` selects
/// one.
struct Operand {
  TensorView tensor;
  Heads heads;
};
Operand part_of(const TensorView& x, int64_t heads, int64_t part) {
  if (x.shape.rank() == 4) return {x, heads_first(x.shape)};
  Heads out = heads_last(x.shape, heads);
  if (x.shape.rank() == 3) return {x, out};
  int64_t parts = x.shape[3];
  out.d = x.shape[4];
  out.head_step = parts * out.d;
  TensorView from = x;
  from.data += packed_bytes(part * out.d, dtype_bits(x.dtype));  // floats: whole bytes
  return {from, out};
}

/// past [b, h, p, d]? and the new heads, each with its part of the bias added, as [b, h, p + s, d].
std::vector<double> joined(const TensorView& past, const Operand& fresh, const double* shift) {
  const Heads& at = fresh.heads;
  int64_t p = past.present() ? past.shape[2] : 0, total = p + at.s;
  std::vector<double> out(static_cast<size_t>(at.b * at.h * total * at.d));
  for (int64_t i = 0; i < at.b * at.h; ++i) {
    double* to = out.data() + i * total * at.d;
    if (p) load(past, i * p * at.d, p * at.d, to);
    for (int64_t t = 0; t < at.s; ++t) {
      double* row = to + (p + t) * at.d;
      load(fresh.tensor, at.at(i / at.h, i % at.h, t), at.d, row);
      for (int64_t e = 0; shift && e < at.d; ++e) row[e] += shift[i % at.h * at.d + e];
    }
  }
  return out;
}

/// One call, its operands widened: queries [b, h, s, d], keys [b, h, n, d], values [b, h, n, e].
struct MultiHead {
  MultiHead(const KernelCall& call, const MultiHeadAttributes& a) : call(call), a(a) {
    TensorView k_view = input(call, key), v_view = input(call, value);
    bool packed = !k_view.present(), pair = !packed && !v_view.present();
    const TensorView& q_view = call.inputs[query];
    q = part_of(q_view, a.heads, 0);
    k = packed ? part_of(q_view, a.heads, 1) : part_of(k_view, a.heads, 0);
    v = packed ? part_of(q_view, a.heads, 2) : part_of(pair ? k_view : v_view, a.heads, pair ? 1 : 0);
    TensorView past = input(call, past_key);
    p = past.present() ? past.shape[2] : 0;
    n = p + k.heads.s;
    scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(q.heads.d));
  }

  /// Checks the operands' sizes; returns the slot at fault.
  KernelStatus check() const {
    auto is = [](const TensorView& x, const Shape& shape) { return !x.present() || x.shape == shape; };
    const Heads &kh = k.heads, &vh = v.heads;
    int64_t b = q.heads.b, h = a.heads, d = q.heads.d;
    TensorView past_k = input(call, past_key), past_v = input(call, past_value);
    auto bad = [](Slot slot, int64_t size) { return KernelStatus{KernelCode::bad_value, slot, size}; };
    if (q.heads.h != h) return bad(query, q.heads.h);
    if (kh.b != b || kh.h != h || kh.d != d) return bad(key, kh.d);
    if (vh.b != b || vh.h != h || vh.s != kh.s) return bad(value, vh.s);
    if (past_k.present() != past_v.present()) return bad(past_value, 0);
    if (past_k.present() && past_k.shape.rank() != 4) return bad(past_key, past_k.shape.rank());
    if (!is(past_k, {b, h, p, d})) return bad(past_key, p);
    if (!is(past_v, {b, h, p, vh.d})) return bad(past_value, p);
    if (TensorView x = input(call, bias); !is(x, {h * (2 * d + vh.d)})) return bad(bias, x.elements());
    if (TensorView x = input(call, padding); x.present()) {
      Shape tokens{b, x.shape.back(1)};
      bool fits = is(x, {b}) || is(x, {3 * b + 2}) || is(x, {b, q.heads.s, n}) ||
                  (x.shape == tokens && (tokens[1] == n || tokens[1] == kh.s));
      if (!fits) return bad(padding, x.elements());
    }
    if (TensorView x = input(call, score_bias); x.present()) {
      auto broadcasts = [&](int axis, int64_t size) { return x.shape[axis] == size || x.shape[axis] == 1; };
      if (x.shape.rank() != 4 || !broadcasts(0, b) || !broadcasts(1, h) || x.shape[2] != q.heads.s || x.shape[3] != n)
        return bad(score_bias, x.elements());
    }
    return {};
  }

  void widen() {
    std::vector<double> shift;
    TensorView own = input(call, bias);
    if (own.present()) shift = load_all<double>(own);
    auto from = [&](int64_t begin) { return own.present() ? shift.data() + begin : nullptr; };
    int64_t width = a.heads * q.heads.d;
    queries = joined({}, q, from(0));
    keys = joined(input(call, past_key), k, from(width));
    values = joined(input(call, past_value), v, from(2 * width));
    if (input(call, padding).present()) mask = to_ints(call.inputs[padding]);
  }

  /// Whether the padding mask shows key j to query i of batch b. Of rank 1 it has lengths; of rank 2 it covers all
  /// keys, or only the new ones, and then all past keys are visible.
  bool counts(int64_t b, int64_t i, int64_t j) const {
    if (mask.empty()) return true;
    const Shape& shape = call.inputs[padding].shape;
    if (shape.rank() == 1) return j < mask[static_cast<size_t>(b)];
    if (shape.rank() == 3) return mask[static_cast<size_t>((b * q.heads.s + i) * n + j)] > 0;
    int64_t at = j - (n - shape[1]);
    return at < 0 || mask[static_cast<size_t>(b * shape[1] + at)] > 0;
  }

  void run_row(int64_t row) const {
    int64_t s = q.heads.s, d = q.heads.d, b = row / (a.heads * s), h = row / s % a.heads, i = row % s;
    std::vector<double> scores(static_cast<size_t>(n)), out(static_cast<size_t>(v.heads.d));
    TensorView add = input(call, score_bias), kept = output(call, 3), y = call.outputs[0];
    int64_t add_at = 0;
    if (add.present())
      add_at = ((add.shape[0] == 1 ? 0 : b) * add.shape[1] + (add.shape[1] == 1 ? 0 : h)) * s * n + i * n;
    for (int64_t j = 0; j < n; ++j) {
      double& score = scores[static_cast<size_t>(j)];
      score = scale * dot(queries.data() + row * d, keys.data() + ((b * a.heads + h) * n + j) * d, d);
      if (add.present()) score += load_one<double>(add, add_at + j);
      if (!counts(b, i, j)) score += a.masked;
      if (a.causal && j > i + p) score = -INFINITY;
    }
    if (kept.present()) store(kept, row * n, n, scores.data());
    softmax_scores(scores);
    for (int64_t j = 0; j < n; ++j) {
      const double* from = values.data() + ((b * a.heads + h) * n + j) * v.heads.d;
      double weight = scores[static_cast<size_t>(j)];
      for (int64_t e = 0; weight != 0 && e < v.heads.d; ++e) out[static_cast<size_t>(e)] += weight * from[e];
    }
    store(y, ((b * s + i) * a.heads + h) * v.heads.d, v.heads.d, out.data());
  }

  const KernelCall& call;
  const MultiHeadAttributes& a;
  Operand q, k, v;
  int64_t p, n;  ///< keys of the past, and all
  double scale;
  std::vector<double> queries, keys, values;
  std::vector<int64_t> mask;
};

KernelStatus multi_head_attention(const KernelCall& call, const MultiHeadAttributes& attributes) {
  MultiHead problem(call, attributes);
  KernelStatus status = problem.check();
  if (status.code != KernelCode::ok) return status;
  problem.widen();
  int64_t rows = problem.q.heads.b * attributes.heads * problem.q.heads.s;
  share(call.pool, rows, rows * problem.n * problem.q.heads.d, [&](int64_t row) { problem.run_row(row); });
  if (output(call, 1).present()) store_all(call.outputs[1], problem.keys);
  if (output(call, 2).present()) store_all(call.outputs[2], problem.values);
  return {};
}

}  // namespace

void add_multi_head_attention(KernelTable& table) {
  add<multi_head_attention>(table, "com.microsoft.MultiHeadAttention", floats);
}

}  // namespace plait::reference

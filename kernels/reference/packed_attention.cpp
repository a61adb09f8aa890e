// plait.PackedAttention and its gradient: causal attention inside the segments of packed rows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/families.h"
#include "kernels/reference/heads.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct PackedAttributes {
  explicit PackedAttributes(const NodeInfo& node)
      : scale(node.attributes.real("scale", 1)),
        softcap(node.attributes.real("softcap", 0)),
        window(node.attributes.integer("window", 0)) {}
  double scale, softcap;
  int64_t window;  ///< keys that a query sees, including itself; 0: all
};

/// q [b, t, h, d], k [b, t, g, d], v [b, t, g, e], segments [b, t] (-1: no token), sinks? [h], slopes? [h]: query
/// head i reads key head i / r, h = g r.
struct Packed {
  Packed(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& segments,
         const TensorView& sinks, const TensorView& slopes, const PackedAttributes& attributes)
      : attributes(attributes),
        t(q.shape[1]),
        h(q.shape[2]),
        g(k.shape[2]),
        d(q.shape[3]),
        e(v.shape[3]),
        q(q),
        k(k),
        v(v),
        segments(to_ints(segments)) {
    if (sinks.present()) this->sinks = load_all<double>(sinks);
    if (slopes.present()) this->slopes = load_all<double>(slopes);
  }

  /// The first token that token i of its row sees: the start of its segment, or of the window.
  int64_t first(int64_t row, int64_t i) const {
    const int64_t* own = segments.data() + row * t;
    const int64_t limit = attributes.window > 0 ? std::max<int64_t>(0, i + 1 - attributes.window) : 0;
    int64_t j = i;
    while (j > limit && own[j - 1] == own[i]) --j;
    return j;
  }
  bool absent(int64_t row, int64_t i) const { return segments[static_cast<size_t>(row * t + i)] < 0; }
  int64_t query_at(int64_t row, int64_t i, int64_t head) const { return (row * t + i) * h + head; }
  int64_t key_at(int64_t row, int64_t j, int64_t head) const { return (row * t + j) * g + head / (h / g); }
  double sink(int64_t head) const { return sinks.empty() ? -INFINITY : sinks[static_cast<size_t>(head)]; }

  /// q . k, scaled and capped.
  double product(int64_t query, int64_t key) const {
    return soft_capped(dot(q.data() + query * d, k.data() + key * d, d) * attributes.scale, attributes.softcap);
  }
  /// The distance term.
  double distance(int64_t head, int64_t i, int64_t j) const {
    return slopes.empty() ? 0 : slopes[static_cast<size_t>(head)] * static_cast<double>(j - i);
  }

  const PackedAttributes& attributes;
  const int64_t t, h, g, d, e;
  const Loaded<double> q, k, v;
  const std::vector<int64_t> segments;
  std::vector<double> sinks, slopes;
};

/// q, k, v, segments, sinks?, slopes? -> y [b, t, h, e], statistics [b, t, h]: the logarithm of the sum of e^score of
/// each row, the sink's included.
KernelStatus packed_attention(const KernelCall& call, const PackedAttributes& attributes) {
  const Packed x(call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[3], input(call, 4), input(call, 5),
                 attributes);
  if (x.g == 0 || x.h % x.g) return {KernelCode::bad_value, 1, x.g};
  const int64_t rows = call.inputs[0].shape[0] * x.t * x.h;
  std::vector<double> statistics(static_cast<size_t>(rows));
  share(call.pool, rows, rows * x.t * x.d, [&](int64_t item) {
    const int64_t head = item % x.h, i = item / x.h % x.t, row = item / x.h / x.t;
    std::vector<double> result(static_cast<size_t>(x.e)), scores;
    if (!x.absent(row, i)) {
      const int64_t first = x.first(row, i);
      double top = x.sink(head), sum = 0;
      for (int64_t j = first; j <= i; ++j) {
        scores.push_back(x.product(item, x.key_at(row, j, head)) + x.distance(head, i, j));
        top = std::max(top, scores.back());
      }
      for (double score : scores) sum += std::exp(score - top);
      const double whole = top + std::log(sum + std::exp(x.sink(head) - top));
      for (int64_t j = first; j <= i; ++j) {
        const double share = std::exp(scores[static_cast<size_t>(j - first)] - whole);
        const double* value = x.v.data() + x.key_at(row, j, head) * x.e;
        for (int64_t at = 0; at < x.e; ++at) result[static_cast<size_t>(at)] += share * value[at];
      }
      statistics[static_cast<size_t>(item)] = whole;
    }
    store(call.outputs[0], item * x.e, x.e, result.data());
  });
  if (output(call, 1).present()) store_all(call.outputs[1], statistics);
  return {};
}

/// dy [b, t, h, e], q, k, v, y, statistics, segments, sinks?, slopes? -> dq, dk, dv, dsinks?. Probabilities are
/// recomputed from scores and statistics, as in FlashAttention 2 (Dao 2023): p = e^(score - statistics), and the
/// gradient of a row's scores is p (dy . v - dy . y).
KernelStatus packed_attention_back(const KernelCall& call, const PackedAttributes& attributes) {
  const Packed x(call.inputs[1], call.inputs[2], call.inputs[3], call.inputs[6], input(call, 7), input(call, 8),
                 attributes);
  if (x.g == 0 || x.h % x.g) return {KernelCode::bad_value, 2, x.g};
  const Loaded<double> dy(call.inputs[0]), y(call.inputs[4]), statistics(call.inputs[5]);
  const int64_t rows = call.inputs[1].shape[0], r = x.h / x.g;
  std::vector<double> dq(static_cast<size_t>(rows * x.t * x.h * x.d)),
      dk(static_cast<size_t>(rows * x.t * x.g * x.d)), dv(static_cast<size_t>(rows * x.t * x.g * x.e)),
      of_row(static_cast<size_t>(rows * x.h));
  // A task has all query heads of one key head of one row: writes do not overlap.
  share(call.pool, rows * x.g, rows * x.h * x.t * x.t * x.d, [&](int64_t task) {
    const int64_t row = task / x.g;
    for (int64_t head = task % x.g * r; head < (task % x.g + 1) * r; ++head)
      for (int64_t i = 0; i < x.t; ++i) {
        if (x.absent(row, i)) continue;
        const int64_t query = x.query_at(row, i, head);
        const double whole = statistics[query], delta = dot(dy.data() + query * x.e, y.data() + query * x.e, x.e);
        of_row[static_cast<size_t>(row * x.h + head)] -= std::exp(x.sink(head) - whole) * delta;
        for (int64_t j = x.first(row, i); j <= i; ++j) {
          const int64_t key = x.key_at(row, j, head);
          const double score = x.product(query, key), p = std::exp(score + x.distance(head, i, j) - whole);
          const double capped = attributes.softcap > 0 ? score / attributes.softcap : 0;
          const double along = dot(dy.data() + query * x.e, x.v.data() + key * x.e, x.e);
          const double ds = p * (along - delta) * (1 - capped * capped) * attributes.scale;
          for (int64_t at = 0; at < x.e; ++at) dv[static_cast<size_t>(key * x.e + at)] += p * dy[query * x.e + at];
          for (int64_t at = 0; at < x.d; ++at) {
            dq[static_cast<size_t>(query * x.d + at)] += ds * x.k[key * x.d + at];
            dk[static_cast<size_t>(key * x.d + at)] += ds * x.q[query * x.d + at];
          }
        }
      }
  });
  const std::vector<double>* results[] = {&dq, &dk, &dv};
  for (size_t k = 0; k < 3; ++k)
    if (output(call, k).present()) store_all(call.outputs[k], *results[k]);
  if (output(call, 3).present()) {
    std::vector<double> dsinks(static_cast<size_t>(x.h));
    for (size_t at = 0; at < of_row.size(); ++at) dsinks[at % dsinks.size()] += of_row[at];
    store_all(call.outputs[3], dsinks);
  }
  return {};
}

}  // namespace

void add_packed_attention(KernelTable& table) {
  add<packed_attention>(table, "plait.PackedAttention", floats);
  add<packed_attention_back>(table, "plait.PackedAttentionBack", floats);
}

}  // namespace plait::reference

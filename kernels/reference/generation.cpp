// Plait's own ops of generation and embedding: KvWrite, PagedAttention, GatherRows, Sample, Embedding.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/token_choice.h"
#include "kernels/reference/families.h"
#include "kernels/reference/heads.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/weights.h"

namespace plait::reference {
namespace {

/// k_pages [p, g, d, c], v_pages [p, g, c, e], k [b, t, g, d], v [b, t, g, e], slots [b, t] -> the pages with each
/// token's key and value at page slot / c, offset slot % c. Slot -1: the token is not written. Keys are transposed,
/// so that the scores of c neighbouring tokens are computed from contiguous rows.
KernelStatus kv_write(const KernelCall& call) {
  const TensorView &k = call.inputs[2], &v = call.inputs[3], &keys = call.outputs[0], &values = call.outputs[1];
  for (size_t i = 0; i < 2; ++i)
    if (call.outputs[i].data != call.inputs[i].data)
      copy_elements(call.inputs[i], 0, call.outputs[i], 0, call.inputs[i].elements());
  int64_t pages = keys.shape[0], g = keys.shape[1], d = keys.shape[2], c = keys.shape[3], e = values.shape[3];
  std::vector<int64_t> slots = to_ints(call.inputs[4]);
  std::vector<double> key(static_cast<size_t>(d)), value(static_cast<size_t>(e));
  for (size_t token = 0; token < slots.size(); ++token) {
    int64_t slot = slots[token];
    if (slot == -1) continue;
    if (slot < 0 || slot >= pages * c) return {KernelCode::index_out_of_range, 4, slot};
    for (int64_t head = 0; head < g; ++head) {
      int64_t row = static_cast<int64_t>(token) * g + head, place = slot / c * g + head;
      load(k, row * d, d, key.data());
      load(v, row * e, e, value.data());
      for (int64_t i = 0; i < d; ++i) store_one(keys, (place * d + i) * c + slot % c, key[static_cast<size_t>(i)]);
      store(values, (place * c + slot % c) * e, e, value.data());
    }
  }
  return {};
}

struct PagedAttributes {
  explicit PagedAttributes(const NodeInfo& node)
      : scale(node.attributes.real("scale", 1)),
        softcap(node.attributes.real("softcap", 0)),
        window(node.attributes.integer("window", 0)) {}
  double scale, softcap;
  int64_t window;  ///< keys that a query sees, including itself; 0: all
};

/// One query head of one token over the pages of its segment.
class PagedRow {
 public:
  PagedRow(const KernelCall& call, const PagedAttributes& attributes) : call_(call), attributes_(attributes) {
    const Shape &keys = call.inputs[1].shape, &values = call.inputs[2].shape;
    g_ = keys[1], d_ = keys[2], c_ = keys[3], e_ = values[3];
  }

  /// The keys first .. position in ascending order: scores, softmax, sum of values. `pages` holds the page of every c
  /// tokens.
  void run(int64_t token, int64_t head, int64_t position, const std::vector<int64_t>& pages) const {
    const TensorView &q = call_.inputs[0], &keys = call_.inputs[1], &values = call_.inputs[2],
                     &out = call_.outputs[0];
    TensorView sinks = input(call_, 6), slopes = input(call_, 7);
    int64_t heads = q.shape[2], group = head / (heads / g_), first = first_key(position);
    std::vector<double> query(static_cast<size_t>(d_)), row(static_cast<size_t>(c_)), result(static_cast<size_t>(e_));
    std::vector<double> scores(static_cast<size_t>(position + 1 - first), 0.0), value(static_cast<size_t>(e_));
    load(q, (token * heads + head) * d_, d_, query.data());
    double slope = slopes.present() ? load_one<double>(slopes, head) : 0;
    for (int64_t j = first; j <= position; j = (j / c_ + 1) * c_) {  // one page per iteration
      int64_t count = std::min((j / c_ + 1) * c_, position + 1) - j;
      for (int64_t i = 0; i < d_; ++i) {
        load(keys, ((pages[static_cast<size_t>(j / c_)] * g_ + group) * d_ + i) * c_ + j % c_, count, row.data());
        for (int64_t at = 0; at < count; ++at)
          scores[static_cast<size_t>(j - first + at)] += query[static_cast<size_t>(i)] * row[static_cast<size_t>(at)];
      }
    }
    for (int64_t j = first; j <= position; ++j) {
      double& score = scores[static_cast<size_t>(j - first)];
      score = soft_capped(score * attributes_.scale, attributes_.softcap) + slope * static_cast<double>(j - position);
    }
    softmax_scores(scores, sinks.present() ? load_one<double>(sinks, head) : -INFINITY);
    for (int64_t j = first; j <= position; ++j) {
      load(values, ((pages[static_cast<size_t>(j / c_)] * g_ + group) * c_ + j % c_) * e_, e_, value.data());
      for (int64_t i = 0; i < e_; ++i)
        result[static_cast<size_t>(i)] += scores[static_cast<size_t>(j - first)] * value[static_cast<size_t>(i)];
    }
    store(out, (token * heads + head) * e_, e_, result.data());
  }

  int64_t first_key(int64_t position) const {
    return attributes_.window > 0 ? std::max<int64_t>(0, position + 1 - attributes_.window) : 0;
  }

 private:
  const KernelCall& call_;
  const PagedAttributes& attributes_;
  int64_t g_, d_, c_, e_;
};

/// q [b, t, h, d], k_pages [p, g, d, c], v_pages [p, g, c, e], positions [b, t], segments [b, t], page_table [n, m],
/// sinks? [h], slopes? [h] -> [b, t, h, e]. Causal: a token sees the keys 0 .. position of its segment, or the last
/// `window` of them. Rows are independent.
KernelStatus paged_attention(const KernelCall& call, const PagedAttributes& attributes) {
  const Shape &q = call.inputs[0].shape, &keys = call.inputs[1].shape, &table = call.inputs[5].shape;
  int64_t heads = q[2], c = keys[3], columns = table[1], tokens = q[0] * q[1], e = call.outputs[0].shape[3], work = 0;
  std::vector<int64_t> positions = to_ints(call.inputs[3]), segments = to_ints(call.inputs[4]),
                       pages = to_ints(call.inputs[5]);
  PagedRow row(call, attributes);
  for (size_t token = 0; token < positions.size(); ++token) {
    int64_t segment = segments[token], position = positions[token];
    if (segment == -1) continue;
    if (segment < 0 || segment >= table[0]) return {KernelCode::index_out_of_range, 4, segment};
    if (position < 0 || position >= columns * c) return {KernelCode::index_out_of_range, 3, position};
    for (int64_t j = row.first_key(position) / c; j <= position / c; ++j) {
      int64_t page = pages[static_cast<size_t>(segment * columns + j)];
      if (page < 0 || page >= keys[0]) return {KernelCode::index_out_of_range, 5, page};
    }
    work += heads * (position + 1) * keys[2];
  }
  share(call.pool, tokens * heads, work, [&](int64_t item) {
    int64_t token = item / heads, segment = segments[static_cast<size_t>(token)];
    if (segment == -1) {
      std::vector<double> zeros(static_cast<size_t>(e), 0.0);
      return store(call.outputs[0], item * e, e, zeros.data());
    }
    std::vector<int64_t> own(pages.begin() + segment * columns, pages.begin() + (segment + 1) * columns);
    row.run(token, item % heads, positions[static_cast<size_t>(token)], own);
  });
  return {};
}

/// x [b, s, ...], rows [b, n] -> [b, n, ...].
KernelStatus gather_rows(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  std::vector<int64_t> rows = to_ints(call.inputs[1]);
  int64_t n = call.inputs[1].shape[1], s = x.shape[1], inner = x.shape.elements(2, x.shape.rank());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= s) return {KernelCode::index_out_of_range, 1, rows[i]};
    auto at = static_cast<int64_t>(i);
    copy_elements(x, (at / n * s + rows[i]) * inner, out, at * inner, inner);
  }
  return {};
}

/// logits [b, r, v], settings [b, r, 6], edits [b, e, 5] -> tokens [b, r].
KernelStatus sample(const KernelCall& call) {
  const TensorView &logits = call.inputs[0], &settings = call.inputs[1], &edits = call.inputs[2];
  const int64_t rows = logits.shape[1], v = logits.shape[2], count = edits.shape[1];
  for (int64_t i = 0; i < logits.shape[0] * rows; ++i) {
    ChoiceSettings own;
    std::memcpy(static_cast<void*>(&own), settings.as<int64_t>() + i * choice_words, sizeof own);
    std::vector<LogitEdit> of_row;
    for (int64_t k = 0; k < count; ++k) {
      const int32_t* edit = edits.as<int32_t>() + (i / rows * count + k) * edit_words;
      if (*edit == i % rows) std::memcpy(static_cast<void*>(&of_row.emplace_back()), edit + 1, sizeof(LogitEdit));
    }
    std::vector<float> row(logits.as<float>() + i * v, logits.as<float>() + (i + 1) * v);
    call.outputs[0].as<int32_t>()[i] = choose_token(row, own, of_row);
  }
  return {};
}

struct EmbeddingAttributes {
  explicit EmbeddingAttributes(const NodeInfo& node)
      : zero(node.attributes.integer("zero", 0)), vocabulary(ShardedAxis::of(node.attributes)) {}
  int64_t zero;
  ShardedAxis vocabulary;
};

/// table [v, h], ids [...], scales and zeros of a quantised table -> [..., h], converted to the output's dtype. A row
/// of another rank is 0.
KernelStatus embedding(const KernelCall& call, const EmbeddingAttributes& attributes) {
  const TensorView &table = call.inputs[0], &out = call.outputs[0];
  std::vector<int64_t> ids = to_ints(call.inputs[1]);
  const int64_t v = table.shape[0], h = out.shape.back(1);
  const Weights rows{table, input(call, 2), input(call, 3), attributes.zero};
  if (!rows.fits(h)) return {KernelCode::bad_value, 0, h};
  std::vector<float> quantised;
  std::vector<double> row(static_cast<size_t>(h));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!attributes.vocabulary.contains(ids[i], v)) return {KernelCode::index_out_of_range, 1, ids[i]};
    const int64_t place = attributes.vocabulary.place(ids[i], v);
    if (place < 0) std::fill(row.begin(), row.end(), 0.0);
    else if (rows.blocked()) std::copy_n(rows.row(place, h, quantised), h, row.begin());
    else load(table, place * h, h, row.data());
    store(out, static_cast<int64_t>(i) * h, h, row.data());
  }
  return {};
}

}  // namespace

void add_generation(KernelTable& table) {
  add<kv_write>(table, "plait.KvWrite", floats, 0);
  add<paged_attention>(table, "plait.PagedAttention", floats);
  add<gather_rows>(table, "plait.GatherRows", anything);
  add<sample>(table, "plait.Sample", floats);
  add<embedding>(table, "plait.Embedding", weights);
}

}  // namespace plait::reference

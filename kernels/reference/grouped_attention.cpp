// com.microsoft.GroupQueryAttention (version 1): attention with its KV cache, rotary embedding and norms inside.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/heads.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/rotate.h"

namespace plait::reference {
namespace {

/// The op's inputs by number.
enum GroupedSlot : int32_t {
  query,
  key,
  value,
  past_key,
  past_value,
  seqlens_k,
  total_length,
  cos_cache,
  sin_cache,
  position_ids,
  attention_bias,
  head_sink,
  k_scale,
  v_scale,
  q_norm,
  k_norm
};

struct GroupAttributes {
  explicit GroupAttributes(const NodeInfo& node)
      : query_heads(node.attributes.integer("num_heads")), key_heads(node.attributes.integer("kv_num_heads")),
        window(node.attributes.integer("local_window_size", -1)), scale(node.attributes.real("scale", 0)),
        softcap(node.attributes.real("softcap", 0)), epsilon(node.attributes.real("qk_norm_epsilon", 1e-6)),
        rotary(node.attributes.integer("do_rotary", 0) != 0),
        interleaved(node.attributes.integer("rotary_interleaved", 0) != 0),
        smooth(node.attributes.integer("smooth_softmax", 0) > 0), causal(node.attributes.integer("causal", 1) != 0) {
    if (query_heads < 1 || key_heads < 1 || query_heads % key_heads)
      throw Error(Code::bad_model, cat(node.op, ": ", query_heads, " query heads over ", key_heads, " key heads"));
    for (const char* name : {"k_quant_type", "v_quant_type"})
      if (node.attributes.string(name, "NONE") != "NONE")
        throw Error(Code::unsupported, cat(node.op, ": a quantised cache (", name, ") is not supported"));
    if (node.attributes.integer("qk_output", 0) != 0)
      throw Error(Code::unsupported, cat(node.op, ": qk_output is not supported"));
  }
  int64_t query_heads, key_heads, window;  ///< window includes the query itself; below 1: none
  double scale, softcap, epsilon;          ///< scale 0: 1 / sqrt(d)
  bool rotary, interleaved, smooth, causal;
};

/// One call. present_key and present_value [b, g, m, d] hold the keys that count, past included.
struct GroupProblem {
  GroupProblem(const KernelCall& call, const GroupAttributes& a) : call(call), a(a) {
    const Shape& shape = call.inputs[query].shape;
    bool packed = !input(call, key).present();
    b = shape[0], s = shape[1];
    d = packed ? shape[2] / (a.query_heads + 2 * a.key_heads) : shape[2] / a.query_heads;
    scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(d));
    queries = take(query, packed ? 0 : -1, a.query_heads);
    keys = take(packed ? query : key, packed ? a.query_heads : -1, a.key_heads);
    values = take(packed ? query : value, packed ? a.query_heads + a.key_heads : -1, a.key_heads);
    for (int64_t last : to_ints(call.inputs[seqlens_k])) totals.push_back(last + 1);
    // A prompt starts at 0 in every row, also in right-padded ones.
    bool prompt = load_one<int64_t>(call.inputs[total_length], 0) == s;
    for (int64_t total : totals) starts.push_back(prompt ? 0 : total - s);
  }

  /// Heads [b, s, heads, d] of an operand, from head `first` of a packed row on.
  std::vector<double> take(GroupedSlot slot, int64_t first, int64_t heads) const {
    const TensorView& from = call.inputs[slot];
    std::vector<double> out(static_cast<size_t>(b * s * heads * d));
    int64_t pitch = from.shape[2];
    for (int64_t row = 0; row < b * s; ++row)
      load(from, row * pitch + std::max<int64_t>(first, 0) * d, heads * d, out.data() + row * heads * d);
    return out;
  }

  /// RMS norm over d with the weight of `slot`, if present.
  void normalize(std::vector<double>& heads, GroupedSlot slot) const {
    if (!input(call, slot).present()) return;
    std::vector<double> weight = load_all<double>(call.inputs[slot]);
    for (size_t i = 0; i < heads.size(); i += static_cast<size_t>(d)) {
      double mean = dot(&heads[i], &heads[i], d) / static_cast<double>(d);
      for (size_t j = 0; j < weight.size(); ++j) heads[i + j] *= weight[j] / std::sqrt(mean + a.epsilon);
    }
  }

  KernelStatus embed(std::vector<double>& heads, int64_t count) const {
    if (!a.rotary) return {};
    const TensorView &cos = call.inputs[cos_cache], ids = input(call, position_ids);
    int64_t z = cos.shape[1];
    std::vector<double> c(static_cast<size_t>(z)), sine(static_cast<size_t>(z));
    for (int64_t row = 0; row < b * s; ++row) {
      int64_t position = ids.present() ? load_one<int64_t>(ids, row) : starts[static_cast<size_t>(row / s)] + row % s;
      if (position < 0 || position >= cos.shape[0])
        return {KernelCode::index_out_of_range, ids.present() ? position_ids : seqlens_k, position};
      load(cos, position * z, z, c.data());
      load(call.inputs[sin_cache], position * z, z, sine.data());
      for (int64_t h = 0; h < count; ++h)
        rotate(heads.data() + (row * count + h) * d, c.data(), sine.data(), z, a.interleaved);
    }
    return {};
  }

  /// Writes past, then the new tokens at their places, into a present output.
  KernelStatus write(GroupedSlot past_slot, const std::vector<double>& heads, const TensorView& present) const {
    TensorView past = input(call, past_slot);
    int64_t m = present.shape[2], old = past.present() ? past.shape[2] : 0;
    for (int64_t i = 0; i < b * a.key_heads && past.data != present.data; ++i)
      if (old) copy_elements(past, i * old * d, present, i * m * d, std::min(old, m) * d);
    for (int64_t i = 0; i < b; ++i)
      for (int64_t t = 0; t < s; ++t) {
        int64_t at = starts[static_cast<size_t>(i)] + t;
        if (at < 0 || at >= m) return {KernelCode::index_out_of_range, seqlens_k, at};
        for (int64_t g = 0; g < a.key_heads; ++g)
          store(present, ((i * a.key_heads + g) * m + at) * d, d, heads.data() + ((i * s + t) * a.key_heads + g) * d);
      }
    return {};
  }

  void run_row(int64_t row, const std::vector<double>& all_keys, const std::vector<double>& all_values) const {
    int64_t i = row / (s * a.query_heads), t = row / a.query_heads % s, h = row % a.query_heads;
    int64_t g = h / (a.query_heads / a.key_heads), m = call.outputs[1].shape[2];
    int64_t position = starts[static_cast<size_t>(i)] + t;
    int64_t end = a.causal ? position + 1 : totals[static_cast<size_t>(i)];
    int64_t begin = a.window > 0 ? std::max<int64_t>(0, position + 1 - a.window) : 0;
    std::vector<double> scores(static_cast<size_t>(std::max<int64_t>(0, end - begin))), out(static_cast<size_t>(d));
    const double* base = all_keys.data() + (i * a.key_heads + g) * m * d;
    TensorView bias = input(call, attention_bias), sink = input(call, head_sink);
    Shape bias_at;
    if (bias.present()) bias_at = broadcast_strides(bias.shape, {b, a.query_heads, s, bias.shape[3]});
    for (int64_t j = begin; j < end; ++j) {
      double score = soft_capped(scale * dot(queries.data() + row * d, base + j * d, d), a.softcap);
      if (bias.present() && j < bias.shape[3])
        score += load_one<double>(bias, i * bias_at[0] + h * bias_at[1] + t * bias_at[2] + j * bias_at[3]);
      scores[static_cast<size_t>(j - begin)] = score;
    }
    softmax_scores(scores, sink.present() ? load_one<double>(sink, h) : a.smooth ? 0 : -INFINITY);
    const double* from = all_values.data() + (i * a.key_heads + g) * m * d;
    for (int64_t j = begin; j < end; ++j)
      for (int64_t e = 0; e < d; ++e)
        out[static_cast<size_t>(e)] += scores[static_cast<size_t>(j - begin)] * from[j * d + e];
    store(call.outputs[0], row * d, d, out.data());
  }

  const KernelCall& call;
  const GroupAttributes& a;
  int64_t b, s, d;
  double scale;
  std::vector<double> queries, keys, values;  ///< [b, s, heads, d]
  std::vector<int64_t> totals, starts;        ///< of each batch: keys in all, and the position of query 0
};

KernelStatus group_query_attention(const KernelCall& call, const GroupAttributes& attributes) {
  GroupProblem problem(call, attributes);
  for (int64_t total : problem.totals)
    if (total < 1 || total > call.outputs[1].shape[2]) return {KernelCode::index_out_of_range, seqlens_k, total - 1};
  if (attributes.rotary && 2 * call.inputs[cos_cache].shape[1] > problem.d)
    return {KernelCode::bad_value, cos_cache, call.inputs[cos_cache].shape[1]};
  problem.normalize(problem.queries, q_norm);
  problem.normalize(problem.keys, k_norm);
  KernelStatus status = problem.embed(problem.queries, attributes.query_heads);
  if (status.code == KernelCode::ok) status = problem.embed(problem.keys, attributes.key_heads);
  if (status.code == KernelCode::ok) status = problem.write(past_key, problem.keys, call.outputs[1]);
  if (status.code == KernelCode::ok) status = problem.write(past_value, problem.values, call.outputs[2]);
  if (status.code != KernelCode::ok) return status;
  // Later calls see the cache rounded to its dtype: so this one does too.
  std::vector<double> keys = load_all<double>(call.outputs[1]), values = load_all<double>(call.outputs[2]);
  int64_t rows = problem.b * problem.s * attributes.query_heads;
  share(call.pool, rows, rows * call.outputs[1].shape[2] * problem.d,
        [&](int64_t row) { problem.run_row(row, keys, values); });
  return {};
}

}  // namespace

void add_grouped_attention(KernelTable& table) {
  add<group_query_attention>(table, "com.microsoft.GroupQueryAttention", Domain{"floats", [](const NodeInfo& node) {
    return first_is(node, is_float) && node.outputs.size() >= 3 && is_float(node.outputs[1].dtype) &&
           is_float(node.outputs[2].dtype);
  }});
}

}  // namespace plait::reference

// Ops with a state that is carried from token to token.
#include <cmath>

#include "kernels/reference/families.h"
#include "kernels/reference/kernel_of.h"
#include "kernels/reference/numbers.h"

namespace plait::reference {
namespace {

struct LinearAttentionAttributes {
  explicit LinearAttentionAttributes(const NodeInfo& node)
      : q(node.attributes.integer("q_num_heads", 1)),
        kv(node.attributes.integer("kv_num_heads", 1)),
        scale(node.attributes.real("scale", 0)) {
    const std::string rule = node.attributes.string("update_rule", "gated_delta");
    decays = rule.starts_with("gated");
    corrects = rule.ends_with("delta");
  }
  int64_t q, kv;
  double scale;
  bool decays, corrects;
};

/// Of each head: S = exp(g) S + beta k (v - exp(g) S^T k)^T, the correction for the delta rules alone (Yang et al. 2024,
/// "Gated Delta Networks"); y = scale S^T q. A state, a key or a query is shared by the heads that are more.
KernelStatus linear_attention(const KernelCall& call, const LinearAttentionAttributes& a) {
  const TensorView &query = call.inputs[0], &key = call.inputs[1], &value = call.inputs[2], past = input(call, 3),
                   decay = input(call, 4), beta = input(call, 5), present = output(call, 1);
  const int64_t batch = query.shape[0], steps = query.shape[1], d = query.shape[2] / a.q, e = value.shape[2] / a.kv;
  const int64_t keys = key.shape[2] / std::max<int64_t>(d, 1), heads = std::max(a.q, a.kv);
  const double scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(d));
  const auto q = load_all<double>(query), k = load_all<double>(key), v = load_all<double>(value);
  const auto g = decay.present() ? load_all<double>(decay) : std::vector<double>();
  const auto rate = beta.present() ? load_all<double>(beta) : std::vector<double>();
  const int64_t g_width = decay.present() ? decay.shape[2] : 0, rate_width = beta.present() ? beta.shape[2] : 0;
  auto state =
      past.present() ? load_all<double>(past) : std::vector<double>(static_cast<size_t>(batch * a.kv * d * e));
  std::vector<double> out(static_cast<size_t>(batch * steps * heads * e)), held(static_cast<size_t>(e));
  auto at = [](const std::vector<double>& list, int64_t i) { return list[static_cast<size_t>(i)]; };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t h = 0; h < a.kv; ++h) {
        const int64_t token = b * steps + t;
        double* s = state.data() + (b * a.kv + h) * d * e;
        const int64_t k_at = (token * keys + h * keys / a.kv) * d, v_at = (token * a.kv + h) * e;
        std::fill(held.begin(), held.end(), 0.0);
        for (int64_t i = 0; i < d; ++i) {
          const double kept = a.decays ? std::exp(at(g, token * g_width + (g_width == a.kv ? h : h * d + i))) : 1;
          for (int64_t j = 0; j < e; ++j) {
            s[i * e + j] *= kept;
            held[static_cast<size_t>(j)] += s[i * e + j] * at(k, k_at + i);
          }
        }
        const double share = a.corrects ? at(rate, token * rate_width + (rate_width == 1 ? 0 : h)) : 1;
        for (int64_t i = 0; i < d; ++i)
          for (int64_t j = 0; j < e; ++j)
            s[i * e + j] += share * at(k, k_at + i) * (at(v, v_at + j) - (a.corrects ? at(held, j) : 0));
        // This state's queries: one or more of its own, or the one that it shares with others.
        for (int64_t r = 0; r < heads / a.kv; ++r) {
          const int64_t head = h * (heads / a.kv) + r, q_at = (token * a.q + head * a.q / heads) * d;
          for (int64_t j = 0; j < e; ++j) {
            double sum = 0;
            for (int64_t i = 0; i < d; ++i) sum += s[i * e + j] * at(q, q_at + i);
            out[static_cast<size_t>((token * heads + head) * e + j)] = scale * sum;
          }
        }
      }
  store(call.outputs[0], 0, static_cast<int64_t>(out.size()), out.data());
  if (present.present()) store(present, 0, static_cast<int64_t>(state.size()), state.data());
  return {};
}

}  // namespace

void add_recurrent(KernelTable& table) { add<linear_attention>(table, "LinearAttention", floats); }

}  // namespace plait::reference

// Raise, experts: a mixture of experts in any exported form becomes plait.Experts: each expert on its tokens, each on
// all tokens with zero weights, or gathered expert weights per token.
//
// All forms compute one value from three: tokens, expert numbers (from a router's TopK) and routing weights. The
// region between is evaluated on numbers, and compared with the canonical op on weights read from its products:
// stacks or single experts, in either orientation, with gate and up concatenated, interleaved or separate. Only the
// order of the experts is assumed, and that is compared too.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/activation.h"
#include "core/base/error.h"
#include "core/passes/raise/experts.h"

namespace plait {
namespace {

/// The activation between the products, as attributes of plait.Experts.
struct GatedActivation {
  Activation activation = Activation::silu;
  double alpha = 1, beta = 0, limit = 0;

  double gate(double g) const {
    g = alpha * (limit > 0 ? std::min(g, limit) : g);
    return activate(activation, g) / alpha;
  }
  double up(double u) const { return (limit > 0 ? std::clamp(u, -limit, limit) : u) + beta; }
};

bool among(const std::vector<ValueId>& ids, ValueId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

class ExpertsRaiser {
 public:
  ExpertsRaiser(Graph& graph, const PassContext& context, SymbolId tokens)
      : graph_(graph), context_(context), tokens_(tokens), probe_(graph, context_) {
    // A budget of its own: weights are read a few times, however large they are.
    context_.budget = std::make_shared<EvaluationBudget>();
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (const auto& constant = graph.value(id).constant) context_.budget->steps += 8 * constant->shape().elements();
  }

  bool run() {
    bool any = false;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (i >= graph_.nodes.size() || graph_.nodes[i].op != "TopK" || graph_.nodes[i].outputs.size() < 2) continue;
      if (!raise(i)) continue;
      any = true;
      graph_.sort();
      graph_.remove_dead();
      i = graph_.nodes.size();
    }
    return any;
  }

 private:
  bool raise(size_t router);
  std::vector<ValueId> sums_behind(size_t router) const;
  std::optional<Mixture> mixture(size_t router, ValueId sum) const;
  std::optional<GatedActivation> fit(const Mixture& m, const Reading& reading) const;
  bool same(const Mixture& m, const Reading& reading, const GatedActivation& gated) const;
  std::optional<std::vector<float>> run(const Mixture& m, int64_t count, const std::vector<float>& x,
                                        const std::vector<int64_t>& numbers, const std::vector<float>& shares) const;
  void replace(const Mixture& m, const Reading& reading, const GatedActivation& gated);

  const Dims* dims(ValueId id) const { return probe_.dims(id); }
  /// The last size of a value with one row per token; 0 for others.
  int64_t width_of_rows(ValueId id) const {
    const Dims* found = dims(id);
    if (!found || found->size() < 2 || !found->back().is_constant()) return 0;
    Dim rows(1);
    for (size_t axis = 0; axis + 1 < found->size(); ++axis) rows = rows * (*found)[axis];
    return rows == Dim::symbol(tokens_) ? found->back().constant() : 0;
  }
  bool is_float_value(ValueId id) const { return is_float(graph_.value(id).type.dtype); }
  Shape shape_of(ValueId id, int64_t count) const {
    Shape out;
    for (const Dim& dim : *dims(id)) out.push_back(dim.is_constant() ? dim.constant() : count);
    return out;
  }
  std::vector<double> scalars(const Mixture& m) const;

  Graph& graph_;
  PassContext context_;
  SymbolId tokens_;
  RegionProbe probe_;
  std::vector<int32_t> producer_;
  std::vector<std::vector<int32_t>> reader_;
  std::vector<bool> data_;
};

// ---- matching ----

/// Values that combine all results of the router's choice, in rows of tokens: the nearest first.
std::vector<ValueId> ExpertsRaiser::sums_behind(size_t router) const {
  constexpr size_t most = 8;
  std::vector<ValueId> out;
  std::vector<size_t> unread(static_cast<size_t>(graph_.value_count()));
  std::set<ValueId> open;  // values that depend on the choice and have further readers
  auto add = [&](ValueId id) {
    if (id == no_value) return;
    unread[static_cast<size_t>(id)] = reader_[static_cast<size_t>(id)].size() + among(graph_.outputs, id);
    if (unread[static_cast<size_t>(id)]) open.insert(id);
  };
  for (ValueId id : graph_.nodes[router].outputs) add(id);
  for (size_t i = router + 1; i < graph_.nodes.size() && out.size() < most && !open.empty(); ++i) {
    const Node& node = graph_.nodes[i];
    std::set<ValueId> read;
    for (ValueId id : node.inputs)
      if (id != no_value && open.count(id)) read.insert(id);
    if (read.empty()) continue;
    if (node.op == "plait.KvWrite" || node.op == "plait.PagedAttention") break;
    for (ValueId id : read)
      if (--unread[static_cast<size_t>(id)] == 0) open.erase(id);
    for (ValueId id : node.outputs) add(id);
    if (open.size() == 1 && is_float_value(*open.begin()) && width_of_rows(*open.begin()))
      out.push_back(*open.begin());
  }
  return out;
}

/// The region between the sum and the router; nullopt if it has other inputs than tokens, numbers and shares.
std::optional<Mixture> ExpertsRaiser::mixture(size_t router, ValueId sum) const {
  const Node& top = graph_.nodes[router];
  Mixture m;
  m.numbers = top.outputs[1];
  m.e = width_of_rows(top.inputs[0]);
  m.k = width_of_rows(m.numbers);
  m.o = width_of_rows(sum);
  if (!m.e || !m.k || m.k > m.e) return std::nullopt;
  std::set<ValueId> before{top.inputs[0]};  // ancestors of the router's input
  for (size_t i = router; i-- > 0;) {
    const Node& node = graph_.nodes[i];
    if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return before.count(id) > 0; }))
      continue;
    before.insert(node.inputs.begin(), node.inputs.end());
  }
  std::set<int32_t> inside;
  std::vector<ValueId> open{sum};
  std::set<ValueId> seen{sum};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (!data_[static_cast<size_t>(id)] || id == m.numbers) continue;
    if (id != sum && is_float_value(id)) {
      const int64_t width = width_of_rows(id);
      ValueId* entry = nullptr;
      if (width && before.count(id)) entry = &m.region.entry;
      else if (width == m.k) entry = &m.shares;
      if (entry) {
        if (*entry != no_value && *entry != id) return std::nullopt;
        *entry = id;
        continue;
      }
    }
    const int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker < 0 || !graph_.nodes[static_cast<size_t>(maker)].bodies.empty()) return std::nullopt;
    if (graph_.nodes[static_cast<size_t>(maker)].op == "plait.Experts") return std::nullopt;  // already raised
    inside.insert(maker);
    for (ValueId input : graph_.nodes[static_cast<size_t>(maker)].inputs)
      if (input != no_value && seen.insert(input).second) open.push_back(input);
  }
  if (m.region.entry == no_value || m.shares == no_value) return std::nullopt;
  m.h = width_of_rows(m.region.entry);
  m.region.output = sum;
  m.region.nodes.assign(inside.begin(), inside.end());
  return m;
}

/// Candidates for limits and other scalars.
std::vector<double> ExpertsRaiser::scalars(const Mixture& m) const {
  std::vector<double> out;
  auto add = [&](double value) {
    if (std::isfinite(value) && value > 0 && std::find(out.begin(), out.end(), value) == out.end())
      out.push_back(value);
  };
  for (int32_t index : m.region.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (node.attributes.has("alpha")) add(node.attributes.real("alpha", 1));
    for (ValueId id : node.inputs) {
      const Tensor* tensor = id == no_value ? nullptr : graph_.constant(id);
      if (tensor && is_float(tensor->dtype()) && tensor->elements() == 1) add(double{floats(*tensor)[0]});
    }
  }
  if (out.size() > 8) out.resize(8);
  return out;
}

// ---- verification ----

/// The sum [count, o] for these tokens; empty if it cannot be evaluated.
std::optional<std::vector<float>> ExpertsRaiser::run(const Mixture& m, int64_t count, const std::vector<float>& x,
                                                     const std::vector<int64_t>& numbers,
                                                     const std::vector<float>& shares) const {
  const Tensor n = Tensor::of<int64_t>(DType::i64, shape_of(m.numbers, count), numbers);
  const Tensor s = Tensor::of<float>(DType::f32, shape_of(m.shares, count), shares);
  return probe_.run(m.region, shape_of(m.region.entry, count), count, x, {{m.numbers, n}, {m.shares, s}});
}

double largest(const std::vector<double>& values) {
  double out = 0;
  for (double value : values) out = std::max(out, std::fabs(value));
  return out;
}

/// The activation that matches the region for two tokens of the first expert: one with moderate gates, and one beyond
/// any limit.
std::optional<GatedActivation> ExpertsRaiser::fit(const Mixture& m, const Reading& reading) const {
  const auto h = static_cast<size_t>(m.h), o = static_cast<size_t>(m.o);
  const std::vector<double> numbers = scalars(m);
  const double beyond = numbers.empty() ? 4 : 4 * *std::max_element(numbers.begin(), numbers.end());
  std::vector<float> x = samples(2 * h, -1, 1);
  for (size_t token : {size_t{0}, size_t{1}}) {
    const double size = largest(product(reading.gate, 0, x.data() + token * h, h));
    const auto factor = static_cast<float>((token ? std::max(beyond, 4.0) : 3) / std::max(size, 1e-6));
    for (size_t i = 0; i < h; ++i) x[token * h + i] *= factor;
  }
  std::vector<int64_t> chosen;
  std::vector<float> shares;
  for (int64_t token = 0; token < 2; ++token)
    for (int64_t k = 0; k < m.k; ++k) {
      chosen.push_back(k);
      shares.push_back(k ? 0.0f : 1.0f);
    }
  auto y = run(m, 2, x, chosen, shares);
  if (!y || y->size() != 2 * o) return std::nullopt;
  std::vector<double> gates[2], ups[2];
  for (size_t token : {size_t{0}, size_t{1}}) {
    gates[token] = product(reading.gate, 0, x.data() + token * h, h);
    if (reading.up.present()) ups[token] = product(reading.up, 0, x.data() + token * h, h);
  }
  const std::vector<float> down = weight_of(reading.down, 0);
  const std::vector<float> shift = is_there(reading.down.bias) ? one_of(reading.down.bias, 0) : std::vector<float>(o);
  const size_t f = gates[0].size(), row = down.size() / o, shown = std::min<size_t>(o, 16);
  auto agrees = [&](const GatedActivation& gated) {
    for (size_t token : {size_t{0}, size_t{1}}) {
      std::vector<double> hidden;
      for (size_t i = 0; i < f; ++i)
        hidden.push_back(gated.gate(gates[token][i]) * (reading.up.present() ? gated.up(ups[token][i]) : 1));
      std::vector<float> expected, got;
      for (size_t j = 0; j < shown; ++j) {
        double sum = shift[j];
        for (size_t i = 0; i < f; ++i) sum += double{down[j * row + i]} * hidden[i];
        expected.push_back(static_cast<float>(sum));
        got.push_back((*y)[token * o + j]);
      }
      if (!close(got, expected)) return false;
    }
    return true;
  };
  std::vector<double> limits{0}, alphas{1}, betas{0};
  for (double number : numbers) {
    limits.push_back(number);
    alphas.push_back(number);
    if (reading.up.present()) betas.push_back(number);
  }
  for (double limit : limits)
    for (double alpha : alphas)
      for (double beta : betas)
        for (Activation activation : activations)
          if (const GatedActivation gated{activation, alpha, beta, limit}; agrees(gated)) return gated;
  return std::nullopt;
}

Node experts_node(const Reading& reading, const GatedActivation& gated) {
  Node out;
  out.op = "plait.Experts";
  out.attributes.set("activation", std::string(activation_name(gated.activation)));
  if (gated.alpha != 1) out.attributes.set("alpha", gated.alpha);
  if (gated.beta != 0) out.attributes.set("beta", gated.beta);
  if (gated.limit != 0) out.attributes.set("limit", gated.limit);
  if (reading.gate.zero != 0) out.attributes.set("zero", reading.gate.zero);
  if (reading.down.zero != 0) out.attributes.set("down_zero", reading.down.zero);
  return out;
}

/// Calls use(operand of plait.Experts, constant) for each constant that exists.
template <class Use>
void each_constant(const Reading& reading, Use use) {
  size_t place = 0;
  for (const Stack* stack : {&reading.gate, &reading.up, &reading.down}) {
    const std::pair<size_t, const Constant*> all[] = {{3 + place, &stack->weight},
                                                      {6 + place, &stack->bias},
                                                      {9 + 2 * place, &stack->scales},
                                                      {10 + 2 * place, &stack->zeros}};
    for (const auto& [operand, constant] : all)
      if (is_there(*constant)) use(operand, *constant);
    ++place;
  }
}

/// Whether region and op agree, on tokens that use all experts (of large models some, including the first and the
/// last: all weights are read only once per run).
bool ExpertsRaiser::same(const Mixture& m, const Reading& reading, const GatedActivation& gated) const {
  constexpr int64_t large = int64_t{1} << 28, some = 16;
  const int64_t f = reading.gate.weight.shape()[1];
  const int64_t tried = m.e * f * (2 * m.h + m.o) > large ? std::min(m.e, std::max(some, m.k)) : m.e;
  const int64_t count = std::max<int64_t>(2, (tried + m.k - 1) / m.k);
  const auto h = static_cast<size_t>(m.h), o = static_cast<size_t>(m.o);
  const std::vector<float> x = samples(static_cast<size_t>(count) * h, -2, 2);
  const std::vector<float> shares = samples(static_cast<size_t>(count * m.k), 0.1f, 1);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count * m.k; ++i) {
    const int64_t place = i % tried;
    chosen.push_back(tried > 1 ? place * (m.e - 1) / (tried - 1) : 0);
  }
  auto got = run(m, count, x, chosen, shares);
  if (!got || got->size() != static_cast<size_t>(count) * o) return false;
  for (size_t token = 0; token < static_cast<size_t>(count); ++token) {
    std::vector<double> sum(o);
    for (size_t slot = token * static_cast<size_t>(m.k); slot < (token + 1) * static_cast<size_t>(m.k); ++slot) {
      std::vector<double> hidden = product(reading.gate, chosen[slot], x.data() + token * h, h), up;
      if (reading.up.present()) up = product(reading.up, chosen[slot], x.data() + token * h, h);
      std::vector<float> narrow;
      for (size_t i = 0; i < hidden.size(); ++i)
        narrow.push_back(static_cast<float>(gated.gate(hidden[i]) * (up.empty() ? 1 : gated.up(up[i]))));
      const std::vector<double> y = product(reading.down, chosen[slot], narrow.data(), narrow.size());
      for (size_t i = 0; i < o; ++i) sum[i] += double{shares[slot]} * y[i];
    }
    const auto row = got->begin() + static_cast<std::ptrdiff_t>(token * o);
    if (!close({row, row + m.o}, {sum.begin(), sum.end()})) return false;
  }
  return true;
}

void ExpertsRaiser::replace(const Mixture& m, const Reading& reading, const GatedActivation& gated) {
  auto flat = [&](ValueId id, int64_t width) {
    if (dims(id)->size() == 2) return id;
    Node& node =
        graph_.add_node("Reshape", {id, graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{-1, width}))});
    graph_.value(node.outputs[0]).type = {graph_.value(id).type.dtype, Dims{Dim::symbol(tokens_), Dim(width)}};
    return node.outputs[0];
  };
  const int32_t maker = producer_[static_cast<size_t>(m.region.output)];
  const std::string name = graph_.nodes[static_cast<size_t>(maker)].name;
  Node node = experts_node(reading, gated);
  node.name = name;
  node.inputs.assign(15, no_value);
  node.inputs[0] = flat(m.region.entry, m.h);
  node.inputs[1] = flat(m.numbers, m.k);
  node.inputs[2] = flat(m.shares, m.k);
  each_constant(reading, [&](size_t operand, const Constant& constant) {
    node.inputs[operand] = graph_.add_constant(constant);
  });
  while (node.inputs.back() == no_value) node.inputs.pop_back();
  const Type type = graph_.value(m.region.output).type;
  ValueId y = graph_.add_value({}, {type.dtype, Dims{Dim::symbol(tokens_), Dim(m.o)}});
  node.outputs = {y};
  store_experts(graph_, context_, node);
  graph_.nodes.push_back(std::move(node));
  if (type.dims->size() != 2) {
    std::vector<int64_t> sizes;
    for (const Dim& dim : *type.dims) sizes.push_back(dim.is_constant() ? dim.constant() : -1);
    Node& back = graph_.add_node("Reshape", {y, graph_.add_constant(Tensor::of_ints(sizes))});
    back.name = name;
    y = back.outputs[0];
    graph_.value(y).type = type;
  }
  graph_.replace_uses(m.region.output, y);
}

bool ExpertsRaiser::raise(size_t router) {
  producer_ = producers(graph_);
  reader_ = consumers(graph_);
  data_ = data_values(graph_, context_.decoder.interface);
  for (ValueId sum : sums_behind(router)) {
    const auto m = mixture(router, sum);
    if (!m) continue;
    for (const Reading& reading : read_weights(graph_, *m)) {
      const auto gated = fit(*m, reading);
      if (!gated || !same(*m, reading, *gated)) continue;
      replace(*m, reading, *gated);
      return true;
    }
  }
  return false;
}

}  // namespace

bool raise_experts(Graph& graph, PassContext& context, SymbolId tokens) {
  return ExpertsRaiser(graph, context, tokens).run();
}

}  // namespace plait

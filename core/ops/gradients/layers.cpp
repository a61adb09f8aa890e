// Gradients of normalisations, of rotary embedding, and of layers with a state from one run to the next.
#include <algorithm>
#include <cmath>

#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

void of_rms_norm(GradientContext& context) {
  const std::vector<ValueId> back =
      context.add_all("plait.RMSNormBack", {context.input(0), context.input(1), context.gradient()},
                      {true, context.wants(1)}, context.kept({"axis", "epsilon"}));
  context.give(0, back[0]);
  context.give(1, back[1]);
}

/// A bias of another shape than the scale is summed separately.
void of_layer_norm(GradientContext& context) {
  if (context.gradient(1) != no_value || context.gradient(2) != no_value)
    GradientContext::fail("means and deviations have none");
  const ValueId scale = context.input(1), bias = context.input(2), dy = context.gradient();
  const bool alike = bias != no_value && context.dims(bias) == context.dims(scale) &&
                     context.type(bias).dtype == context.type(scale).dtype;
  const std::vector<ValueId> back =
      context.add_all("plait.LayerNormBack", {context.input(0), scale, dy},
                      {true, context.wants(1), alike && context.wants(2)}, context.kept({"axis", "epsilon"}));
  context.give(0, back[0]);
  context.give(1, back[1]);
  if (context.wants(2)) context.give(2, alike ? back[2] : context.cast(context.summed_to(dy, bias), bias));
}

/// Rotated back by the same angles.
void of_rotation(GradientContext& context) {
  constexpr size_t sines = 2;
  std::vector<ValueId> inputs = context.node().inputs;
  inputs[0] = context.gradient();
  inputs[sines] = context.negative(inputs[sines]);
  context.give(0, context.add(context.node().op, std::move(inputs), context.attributes()));
}

// ---- Moments over axes ----

std::vector<int64_t> all_but(size_t rank, std::initializer_list<size_t> kept) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < rank; ++i)
    if (std::find(kept.begin(), kept.end(), i) == kept.end()) out.push_back(static_cast<int64_t>(i));
  return out;
}

/// f16 and bf16 in f32, as the ops compute.
ValueId widened(GradientContext& context, ValueId x) {
  const DType dtype = context.type(x).dtype;
  if (dtype == DType::f32 || dtype == DType::f64) return x;
  return context.add("Cast", {x}, one_attribute("to", static_cast<int64_t>(DType::f32)));
}

/// y = scale n + bias of each channel, where n is x less its mean over its deviation, both over `axes` of x as `dims`. `channel` is
/// the dims of scale and bias as they broadcast to these, `others` the axes over which their gradients are sums.
void give_normalised(GradientContext& context, const Dims& dims, const Dims& channel,
                     const std::vector<int64_t>& axes, const std::vector<int64_t>& others) {
  const ValueId x = context.reshaped(widened(context, context.input(0)), dims),
                dy = context.reshaped(widened(context, context.gradient()), dims),
                scale = context.reshaped(widened(context, context.input(1)), channel);
  auto mean = [&](ValueId value) { return context.add("ReduceMean", {value, context.integers(axes)}); };
  const ValueId less = context.minus(x, mean(x)), variance = mean(context.times(less, less));
  const ValueId epsilon = context.number(context.attributes().real("epsilon", 1e-5), x);
  const ValueId inverse = context.add("Reciprocal", {context.add("Sqrt", {context.plus(variance, epsilon)})});
  const ValueId normal = context.times(less, inverse);
  auto give = [&](size_t k, ValueId gradient) {
    context.give(k, context.cast(context.reshaped(gradient, context.input(k)), context.input(k)));
  };
  if (context.wants(0)) {
    const ValueId g = context.times(dy, scale);
    const ValueId rest = context.plus(mean(g), context.times(normal, mean(context.times(g, normal))));
    give(0, context.times(context.minus(g, rest), inverse));
  }
  if (context.wants(1)) give(1, context.sum(context.times(dy, normal), others));
  if (context.wants(2)) give(2, context.sum(dy, others));
}

/// x [b, c, space], of groups of channels as [b, groups, c / groups, space].
void of_group_norm(GradientContext& context) {
  const Dims dims = context.dims(context.input(0));
  const bool instance = context.node().op == "InstanceNormalization";
  const Dim groups = instance ? dims[1] : Dim(context.attributes().integer("num_groups"));
  const std::optional<Dim> each = dims[1].divided(groups);
  if (!each) GradientContext::fail("the channels of a group are known only when it runs");
  Dims parted{dims[0], groups, *each}, channel{groups, *each};
  parted.insert(parted.end(), dims.begin() + 2, dims.end());
  channel.resize(parted.size() - 1, Dim(1));
  give_normalised(context, parted, channel, all_but(parted.size(), {0, 1}), all_but(parted.size(), {1, 2}));
}

/// In training the moments are of the batch; otherwise they are operands.
void of_batch_norm(GradientContext& context) {
  if (context.gradient(1) != no_value || context.gradient(2) != no_value)
    GradientContext::fail("running statistics have none");
  const ValueId x = context.input(0), dy = context.gradient();
  const Dims dims = context.dims(x);
  if (dims.size() < 2) GradientContext::fail("without channels it has none");
  const std::vector<int64_t> others = all_but(dims.size(), {1});
  Dims channel(dims.size() - 1, Dim(1));
  channel[0] = dims[1];
  if (context.attributes().integer("training_mode", 0) != 0)
    return give_normalised(context, dims, channel, others, others);
  auto spread = [&](size_t k) { return context.reshaped(context.cast(context.input(k), x), channel); };
  auto give = [&](size_t k, ValueId gradient) {
    context.give(k,
                 context.cast(context.reshaped(context.sum(gradient, others), context.input(k)), context.input(k)));
  };
  const ValueId epsilon = context.number(context.attributes().real("epsilon", 1e-5), x);
  const ValueId variance = context.plus(spread(4), epsilon);
  const ValueId inverse = context.add("Reciprocal", {context.add("Sqrt", {variance})});
  const ValueId less = context.minus(x, spread(3)), scaled = context.times(context.times(dy, inverse), spread(1));
  context.give(0, scaled);
  if (context.wants(1)) give(1, context.times(context.times(dy, inverse), less));
  if (context.wants(2)) give(2, dy);
  if (context.wants(3)) give(3, context.negative(scaled));
  if (context.wants(4))
    give(4, context.over(context.times(context.times(scaled, less), context.number(-0.5, x)), variance));
}

// ---- Layers with a state ----

/// The convolution of past and x, one channel by itself, then its activation. What is handed on are the last positions of both.
void of_causal_conv(GradientContext& context) {
  const ValueId x = context.input(0), w = context.input(1), bias = context.input(2), past = context.input(3);
  const Dims dims = context.dims(x), weight = context.dims(w);
  if (!dims[1].is_constant() || !weight[2].is_constant())
    GradientContext::fail("its channels or taps are known only when it runs");
  const int64_t before = weight[2].constant() - 1;
  const Attributes along = one_attribute("axis", int64_t{2}), groups = one_attribute("group", dims[1].constant());
  const Dims state{dims[0], dims[1], Dim(before)};
  auto zeros = [&](const Dims& sizes) { return context.add("Expand", {context.number(0, x), context.sizes(sizes)}); };
  const ValueId line = context.add("Concat", {past == no_value ? zeros(state) : past, x}, along);
  ValueId of_line = no_value;
  if (ValueId dy = context.gradient(); dy != no_value) {
    if (context.attributes().string("activation", "none") != "none") {
      std::vector<ValueId> inputs{line, w};
      if (bias != no_value) inputs.push_back(bias);
      const ValueId sum = context.reshaped(context.add("Conv", std::move(inputs), groups), x);
      dy = context.add("plait.UnaryBack", {sum, dy}, one_attribute("function", std::string("Swish")));
    }
    of_line = context.reshaped(context.add("ConvTranspose", {dy, w}, groups), line);
    if (context.wants(1)) context.give(1, context.add("plait.ConvWeight", {dy, line, context.sizes(w)}, groups));
    if (context.wants(2)) context.give(2, context.reshaped(context.sum(dy, {0, 2}), bias));
  }
  if (const ValueId dstate = context.gradient(1); dstate != no_value) {
    const ValueId padded = context.add("Concat", {zeros(dims), dstate}, along);
    of_line = of_line == no_value ? padded : context.plus(of_line, padded);
  }
  const std::vector<ValueId> parts =
      context.add_all("Split", {of_line, context.sizes(Dims{Dim(before), dims[2]})}, {true, true}, along);
  context.give(3, parts[0]);
  context.give(0, parts[1]);
}

/// As one document per row. A state [b, g, d, e] before it is d more tokens, whose keys are the unit vectors and whose values its rows;
/// one after it is read by d more, whose queries are the unit vectors.
class LinearAttentionBack {
 public:
  explicit LinearAttentionBack(GradientContext& context)
      : context_(context),
        before_(context.input(3) != no_value),
        after_(context.gradient(1) != no_value),
        h_(context.attributes().integer("q_num_heads")),
        g_(context.attributes().integer("kv_num_heads")) {
    if (before_ || after_) find_sizes();
  }

  void run() {
    const Dims q = context_.dims(context_.input(0));
    ValueId dy = context_.gradient();
    if (dy == no_value) dy = context_.zeros(context_.output(0));
    // Zeros do nothing: no key, no value, a state that does not fade.
    const ValueId queries = extended(context_.input(0), no_value, after_ ? units(h_, 1 / scale_) : no_value);
    const ValueId keys = extended(context_.input(1), before_ ? units(keys_, 1) : no_value, no_value);
    const ValueId values = extended(context_.input(2), before_ ? rows_of(context_.input(3), g_) : no_value, no_value);
    const ValueId decay = extended(context_.input(4), no_value, no_value);
    ValueId beta = context_.input(5);
    if (beta != no_value) beta = extended(beta, before_ ? filled(context_.dims(beta)[2], 1) : no_value, no_value);
    dy = extended(dy, no_value, after_ ? rows_of(context_.gradient(1), std::max(h_, g_)) : no_value);
    const ValueId document =
        context_.add("Expand", {context_.integers({0}), context_.sizes(Dims{q[0], context_.dims(queries)[1]})});
    std::vector<ValueId> inputs{
        dy,
        queries,
        keys,
        values,
        context_.add("Cast", {document}, one_attribute("to", static_cast<int64_t>(DType::i32))),
        decay,
        beta};
    while (inputs.back() == no_value) inputs.pop_back();
    constexpr size_t operands[] = {0, 1, 2, 4, 5};
    std::vector<bool> wanted;
    for (const size_t k : operands) wanted.push_back(context_.wants(k) || (k == 2 && context_.wants(3)));
    const std::vector<ValueId> back =
        context_.add_all("plait.PackedLinearAttentionBack", std::move(inputs), std::move(wanted),
                         context_.kept({"kv_num_heads", "q_num_heads", "scale", "update_rule"}));
    for (size_t i = 0; i < back.size(); ++i)
      if (back[i] != no_value) give(operands[i], back[i]);
  }

 private:
  void find_sizes() {
    auto is_constant = [&](size_t k, size_t axis) { return context_.dims(context_.input(k))[axis].is_constant(); };
    if (!is_constant(0, 2) || !is_constant(1, 2) || !is_constant(2, 2))
      GradientContext::fail("with a state, the size of a head is known only when it runs");
    d_ = context_.dims(context_.input(0))[2].constant() / h_;
    keys_ = context_.dims(context_.input(1))[2].constant() / d_;
    e_ = context_.dims(context_.input(2))[2].constant() / g_;
    scale_ = context_.attributes().real("scale", 0);
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(d_));
  }

  /// [b, d, width] of one number.
  ValueId filled(const Dim& width, double number) {
    const Dim b = context_.dims(context_.input(0))[0];
    return context_.add("Expand",
                        {context_.number(number, context_.input(0)), context_.sizes(Dims{b, Dim(d_), width})});
  }

  /// [b, d, heads d]: token i has `number` in place i of each head.
  ValueId units(int64_t heads, double number) {
    const ValueId x = context_.input(0);
    const ValueId square = context_.add("Expand", {context_.number(0, x), context_.integers({d_, d_})});
    const ValueId all = context_.add("Tile", {context_.add("EyeLike", {square}), context_.integers({1, heads})});
    const ValueId scaled = context_.times(all, context_.number(number, x));
    return context_.add("Expand", {scaled, context_.sizes(Dims{context_.dims(x)[0], Dim(d_), Dim(heads * d_)})});
  }

  /// A state [b, g, d, e] as [b, d, n e]: row i of each head is token i's; of n / g heads the first has it.
  ValueId rows_of(ValueId state, int64_t n) {
    const Dim b = context_.dims(state)[0];
    ValueId out = context_.add("Transpose", {state}, one_attribute("perm", std::vector<int64_t>{0, 2, 1, 3}));
    if (n > g_) {
      out = context_.reshaped(out, Dims{b, Dim(d_), Dim(g_), Dim(e_)});
      const ValueId others = context_.add(
          "Expand", {context_.number(0, out), context_.sizes(Dims{b, Dim(d_), Dim(g_), Dim((n / g_ - 1) * e_)})});
      out = context_.add("Concat", {out, others}, one_attribute("axis", int64_t{3}));
    }
    return context_.reshaped(out, Dims{b, Dim(d_), Dim(n * e_)});
  }

  /// With the tokens of the states at its ends, zeros where these are not given.
  ValueId extended(ValueId a, ValueId front, ValueId end) {
    if (a == no_value || (!before_ && !after_)) return a;
    const Dim width = context_.dims(a)[2];
    std::vector<ValueId> parts;
    if (before_) parts.push_back(front == no_value ? filled(width, 0) : front);
    parts.push_back(a);
    if (after_) parts.push_back(end == no_value ? filled(width, 0) : end);
    return context_.add("Concat", std::move(parts), one_attribute("axis", int64_t{1}));
  }

  void give(size_t operand, ValueId gradient) {
    if (!before_ && !after_) return context_.give(operand, gradient);
    Dims sizes;
    if (before_) sizes.push_back(Dim(d_));
    sizes.push_back(context_.dims(context_.input(operand))[1]);
    if (after_) sizes.push_back(Dim(d_));
    const std::vector<ValueId> parts =
        context_.add_all("Split", {gradient, context_.sizes(sizes)}, std::vector<bool>(sizes.size(), true),
                         one_attribute("axis", int64_t{1}));
    context_.give(operand, context_.reshaped(parts[before_ ? 1 : 0], context_.input(operand)));
    if (operand != 2 || !before_) return;
    const Dim b = context_.dims(context_.input(3))[0];
    const ValueId rows = context_.reshaped(parts[0], Dims{b, Dim(d_), Dim(g_), Dim(e_)});
    const ValueId state = context_.add("Transpose", {rows}, one_attribute("perm", std::vector<int64_t>{0, 2, 1, 3}));
    context_.give(3, context_.reshaped(state, context_.input(3)));
  }

  GradientContext& context_;
  const bool before_, after_;
  const int64_t h_, g_;  ///< heads of queries, and of values and states
  int64_t d_ = 0, keys_ = 0, e_ = 0;
  double scale_ = 1;
};

void of_linear_attention(GradientContext& context) { LinearAttentionBack(context).run(); }

}  // namespace

void register_layer_gradients(OpSet& ops) {
  ops.differentiate("RMSNormalization", of_rms_norm);
  ops.differentiate("LayerNormalization", of_layer_norm);
  ops.differentiate("plait.RoPE", of_rotation);
  ops.differentiate("RotaryEmbedding", of_rotation);
  ops.differentiate("InstanceNormalization", of_group_norm);
  ops.differentiate("GroupNormalization", of_group_norm);
  ops.differentiate("BatchNormalization", of_batch_norm);
  ops.differentiate("CausalConvWithState", of_causal_conv);
  ops.differentiate("LinearAttention", of_linear_attention);
}

}  // namespace plait

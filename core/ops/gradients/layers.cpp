// Gradients of normalisations, of rotary embedding, and of layers with a state from one run to the next.
#include <algorithm>

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

/// As one document per row.
void of_linear_attention(GradientContext& context) {
  if (context.input(3) != no_value || context.gradient(1) != no_value) GradientContext::fail("a state has none");
  const Dims q = context.dims(context.input(0));
  const ValueId document = context.add("Expand", {context.integers({0}), context.sizes(Dims{q[0], q[1]})});
  std::vector<ValueId> inputs{context.gradient(),
                              context.input(0),
                              context.input(1),
                              context.input(2),
                              context.add("Cast", {document}, one_attribute("to", static_cast<int64_t>(DType::i32))),
                              context.input(4),
                              context.input(5)};
  while (inputs.back() == no_value) inputs.pop_back();
  constexpr size_t operands[] = {0, 1, 2, 4, 5};
  std::vector<bool> wanted;
  for (const size_t k : operands) wanted.push_back(context.wants(k));
  const std::vector<ValueId> back =
      context.add_all("plait.PackedLinearAttentionBack", std::move(inputs), std::move(wanted),
                      context.kept({"kv_num_heads", "q_num_heads", "scale", "update_rule"}));
  for (size_t i = 0; i < back.size(); ++i) context.give(operands[i], back[i]);
}

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

// Gradients of normalisations and of rotary embedding.
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

}  // namespace

void register_layer_gradients(OpSet& ops) {
  ops.differentiate("RMSNormalization", of_rms_norm);
  ops.differentiate("LayerNormalization", of_layer_norm);
  ops.differentiate("plait.RoPE", of_rotation);
  ops.differentiate("RotaryEmbedding", of_rotation);
}

}  // namespace plait

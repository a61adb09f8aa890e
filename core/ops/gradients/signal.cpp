// Gradients of recurrent layers and of Fourier transforms.
#include "core/graph/gradient.h"
#include "core/ops/base/rows.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// Through time, by an op of its own.
void of_recurrent_layer(GradientContext& context) {
  constexpr size_t operands = 8;
  std::vector<ValueId> inputs = context.node().inputs;
  inputs.resize(operands, no_value);
  for (size_t k = 0; k < 3; ++k) inputs.push_back(context.gradient(k));
  while (inputs.back() == no_value) inputs.pop_back();
  constexpr size_t trained[] = {0, 1, 2, 3, 5, 6, 7};
  std::vector<bool> made;
  for (size_t k : trained) made.push_back(context.wants(k));
  Attributes attributes = context.attributes();
  attributes.set("layer", context.node().op);
  const std::vector<ValueId> gradients =
      context.add_all("plait.RecurrentBack", std::move(inputs), made, std::move(attributes));
  for (size_t i = 0; i < made.size(); ++i) context.give(trained[i], gradients[i]);
}

// ---- Fourier transforms ----

/// The Fourier transform along `axis` of x, cut or filled up to `length`; the inverse one without its factor 1 / length.
ValueId transformed(GradientContext& context, ValueId x, const Dim& length, int64_t axis, bool inverse) {
  const ValueId y = context.add("DFT", {x, context.sizes(Dims{length}), context.integers({axis})},
                                one_attribute("inverse", int64_t{inverse}));
  return inverse ? context.times(y, context.count(length, y)) : y;
}

/// Without imaginary parts, if `like` has none.
ValueId parts_of(GradientContext& context, ValueId x, ValueId like) {
  if (context.dims(like).back() != Dim(1)) return x;
  return context.add("Slice", {x, context.integers({0}), context.integers({1}), context.integers({-1})});
}

/// `axis` cut, or filled up with zeros, to the size that `like` has.
ValueId fitted(GradientContext& context, ValueId x, ValueId like, size_t axis) {
  const Dims from = context.dims(x), to = context.dims(like);
  if (from[axis] == to[axis]) return x;
  Dims pads(2 * from.size(), Dim(0));
  pads[from.size() + axis] = to[axis] - from[axis];
  return context.reshaped(context.add("Pad", {x, context.sizes(pads), context.number(0, x)}), to);
}

/// Of the half of a spectrum whose transform is real: every frequency counts twice but those that are their own mirror.
ValueId mirrored_weights(GradientContext& context, const Dim& length, size_t axis, ValueId like) {
  if (!length.is_constant()) GradientContext::fail("its length is known only when it runs");
  const int64_t n = length.constant(), kept = n / 2 + 1;
  auto weight = [&](double value, int64_t count) {
    Dims dims(context.dims(like).size(), Dim(1));
    dims[axis] = Dim(count);
    return context.add("Expand", {context.number(value, like), context.sizes(dims)});
  };
  std::vector<ValueId> parts{weight(1, 1)};
  const int64_t twice = n % 2 == 0 ? kept - 2 : kept - 1;
  if (twice > 0) parts.push_back(weight(2, twice));
  if (n % 2 == 0 && n > 1) parts.push_back(weight(1, 1));
  return context.add("Concat", std::move(parts), one_attribute("axis", static_cast<int64_t>(axis)));
}

/// A linear map: its transpose is the transform the other way, on what was kept and filled up the other way round.
void of_dft(GradientContext& context) {
  const ValueId x = context.input(0), dy = context.gradient();
  const bool inverse = context.attributes().integer("inverse", 0) != 0,
             half = context.attributes().integer("onesided", 0) != 0;
  const Dims dims = context.dims(x);
  auto number_of = [&](size_t k) {
    const std::optional<std::vector<int64_t>> list = context.constants(context.input(k));
    if (!list || list->size() != 1) GradientContext::fail("its length or axis is known only when it runs");
    return list->front();
  };
  const size_t axis = checked_axis(context.input(2) == no_value ? -2 : number_of(2), dims.size());
  Dim length = inverse && half ? Dim(2) * (dims[axis] - Dim(1)) : dims[axis];
  if (context.input(1) != no_value) length = Dim(number_of(1));
  ValueId back = transformed(context, dy, length, static_cast<int64_t>(axis), !inverse);
  if (inverse) back = context.over(back, context.count(length, back));
  if (inverse && half) {
    const ValueId weights = mirrored_weights(context, length, axis, back);
    const ValueId kept = context.sizes(Dims{context.dims(weights)[axis]});
    back = context.add("Slice", {back, context.integers({0}), kept, context.integers({static_cast<int64_t>(axis)})});
    back = context.times(back, weights);
  }
  context.give(0, fitted(context, parts_of(context, back, x), x, axis));
}

/// frames [b, frames, length, parts] = signal at step * frame + i, times the window, then transformed.
void of_stft(GradientContext& context) {
  const ValueId signal = context.input(0), window = context.input(2), dy = context.gradient();
  const std::optional<std::vector<int64_t>> step = context.constants(context.input(1)),
                                            given = context.constants(context.input(3));
  if (!step || step->size() != 1) GradientContext::fail("the step of its frames is known only when it runs");
  if (context.input(3) != no_value && (!given || given->size() != 1))
    GradientContext::fail("the length of its frames is known only when it runs");
  const Dim length = given                ? Dim(given->front())
                     : window != no_value ? context.dims(window)[0]
                                          : context.dims(signal)[1];
  const ValueId spectra = parts_of(context, transformed(context, dy, length, 2, true), signal);
  auto range = [&](ValueId limit, int64_t by) {
    auto scalar = [&](ValueId one) { return context.reshaped(one, Dims{}); };
    return context.add("Range", {scalar(context.integers({0})), scalar(limit), scalar(context.integers({by}))});
  };
  Attributes second = one_attribute("start", int64_t{1});
  second.set("end", int64_t{2});
  const ValueId frames = context.add("Shape", {dy}, std::move(second)), stride = context.integers({step->front()});
  const ValueId begins = range(context.times(frames, stride), step->front());
  const ValueId places =
      context.plus(context.add("Unsqueeze", {begins, context.integers({1})}), range(context.sizes(Dims{length}), 1));
  const Attributes axis = one_attribute("axis", int64_t{1});
  if (context.wants(0)) {
    const ValueId parts =
        window == no_value ? spectra : context.times(spectra, context.reshaped(window, Dims{length, Dim(1)}));
    context.give(0, context.add("plait.GatherBack", {parts, places, context.sizes(signal)}, axis));
  }
  if (context.wants(2)) {
    const ValueId product = context.times(spectra, context.add("Gather", {signal, places}, axis));
    context.give(2, context.reshaped(context.sum(product, {0, 1, 3}), window));
  }
}

}  // namespace

void register_signal_gradients(OpSet& ops) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) ops.differentiate(op, of_recurrent_layer);
  ops.differentiate("DFT", of_dft);
  ops.differentiate("STFT", of_stft);
}

}  // namespace plait

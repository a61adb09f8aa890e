// Fourier transforms, and the weights of mel spectra.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"
#include "core/ops/signal/register.h"

namespace plait {

namespace {

/// floor(n / 2) + 1, the frequencies that determine the others of a real signal.
std::optional<Dim> half_spectrum(const Dim& n) {
  std::optional<Dim> half = known_floor(n, Dim(2));
  if (!half) return std::nullopt;
  return *half + Dim(1);
}

/// x [..., n, ..., 1 or 2] (real, or real and imaginary), dft_length?, axis? -> [..., length, ..., 2], or 1 of a one-sided inverse.
void infer_dft(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* x = context.dims(0);
  if (!x) return;
  const bool inverse = context.attributes().integer("inverse", 0) != 0,
             onesided = context.attributes().integer("onesided", 0) != 0;
  const Dim *length = single(context.contents(1)), *given = single(context.contents(2));
  if (x->size() < 2) InferContext::fail(cat("x has rank ", x->size(), ", expected at least 2"));
  Dims out = *x;
  out.back() = Dim(inverse && onesided ? 1 : 2);
  if (context.has(2) && !(given && given->is_constant()))
    return context.set_dims(0, unknown_dims(context, x->size(), "dft"));
  const size_t axis = checked_axis(given ? given->constant() : -2, x->size());
  if (axis == x->size() - 1) InferContext::fail("the axis is that of real and imaginary parts");
  const Dim fallback = inverse && onesided ? Dim(2) * ((*x)[axis] - Dim(1)) : (*x)[axis];
  std::optional<Dim> size = context.has(1) ? (length ? std::optional(*length) : std::nullopt) : fallback;
  if (size && onesided && !inverse) size = half_spectrum(*size);
  out[axis] = size ? *size : context.unknown("dft");
  context.set_dims(0, std::move(out));
}

/// Other axes are free.
std::string dft_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  if (!is_absent(in, 2)) return "";
  const size_t rank = rank_of(in[0]);
  if (rank < 2) return "";
  DimNames from = dim_names(rank), to = from;
  from[rank - 1] = whole("re"), to[rank - 1] = whole("im");
  from[rank - 2] = whole("n"), to[rank - 2] = whole("m");
  const bool bare = node.inputs.size() < 2;
  return rule_text({cat(bare ? "*" : "", spaced(from)), ""}, {spaced(to)});
}

/// signal [b, n, 1 or 2], frame_step, window? [f], frame_length? -> [b, frames, frequencies, 2]
void infer_stft(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *window = context.dims(2);
  if (!x) return;
  const Dim *step = single(context.contents(1)), *given = single(context.contents(3));
  std::optional<Dim> length, frames;
  if (context.has(3) && given) length = *given;
  else if (!context.has(3) && window) length = (*window)[0];
  else if (!context.has(3) && !context.has(2)) length = (*x)[1];
  if (step && step->is_constant() && step->constant() < 1)
    InferContext::fail(cat("frame_step is ", step->constant()));
  if (length && step && step->is_constant()) frames = known_floor((*x)[1] - *length, *step);
  std::optional<Dim> bins = length;
  if (bins && context.attributes().integer("onesided", 1) != 0) bins = half_spectrum(*bins);
  context.set_dims(0, {(*x)[0], frames ? *frames + Dim(1) : context.unknown("frames"),
                       bins ? *bins : context.unknown("bins"), Dim(2)});
}

/// [dft_length / 2 + 1, num_mel_bins]
void infer_mel(InferContext& context) {
  context.set_type(0, dtype_attribute(context.attributes(), "output_datatype", DType::f32));
  const Dim *bins = single(context.contents(0)), *length = single(context.contents(1));
  std::optional<Dim> rows = length ? half_spectrum(*length) : std::nullopt;
  context.set_dims(0, {rows ? *rows : context.unknown("bins"), bins ? *bins : context.unknown("mel")});
}

}  // namespace

void register_transforms(OpSet& ops) {
  ops.add({.name = "DFT",
           .inputs = "x dft_length? axis?",
           .outputs = "y",
           .attributes = {{"inverse", "int", "0"}, {"onesided", "int", "0"}},
           .dims = "*a [n] [re], , -> a [m] [im]",
           .dims_of = dft_dims,
           .ranks = "2-, 0-1, 0-1",
           .infer = infer_dft,
           .doc = "the discrete Fourier transform of an axis",
           .since = 20});
  ops.add({.name = "STFT",
           .inputs = "signal frame_step window? frame_length?",
           .outputs = "output",
           .attributes = {{"onesided", "int", "1"}},
           .dims = "b [n] [re], , [w], -> b [f] [m] 2",
           .ranks = "3, 0-1, 1, 0-1",
           .infer = infer_stft,
           .doc = "the Fourier transform of frames of a signal, under a window",
           .since = 17});
  ops.add({.name = "MelWeightMatrix",
           .inputs = "num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz",
           .outputs = "output",
           .attributes = {{"output_datatype", "int", "1"}},
           .ranks = "0-1, 0-1, 0-1, 0-1, 0-1",
           .infer = infer_mel,
           .doc = "weights of the frequencies of a spectrum in mel bands",
           .since = 17});
}

}  // namespace plait

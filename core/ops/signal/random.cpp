// Random numbers: functions of a seed and the element's number, so that a run gives the same ones again.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/signal/register.h"

namespace plait {

namespace {

/// Attribute shape.
void infer_random(InferContext& context) {
  Dims dims;
  for (int64_t size : context.attributes().integers("shape")) {
    if (size < 0) InferContext::fail(cat("attribute \"shape\" has the entry ", size));
    dims.push_back(Dim(size));
  }
  context.set(0, dtype_attribute(context.attributes(), "dtype", DType::f32), std::move(dims));
}

/// The shape of operand 0, and its type unless attribute dtype is another.
void infer_random_like(InferContext& context) {
  context.set_type(0, dtype_attribute(context.attributes(), "dtype", context.dtype(0)));
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
}

/// x [b, classes] -> [b, sample_size]
void infer_multinomial(InferContext& context) {
  context.set_type(0, dtype_attribute(context.attributes(), "dtype", DType::i32));
  const int64_t count = context.attributes().integer("sample_size", 1);
  if (count < 0) InferContext::fail(cat("attribute \"sample_size\" is ", count));
  if (const Dims* x = context.dims(0)) context.set_dims(0, {(*x)[0], Dim(count)});
}

}  // namespace

void register_random(OpSet& ops) {
  const AttributeRow seed{"seed", "float", ""}, dtype{"dtype", "int", ""}, shape{"shape", "ints", "required"};
  const AttributeRow mean{"mean", "float", "0"}, scale{"scale", "float", "1"}, high{"high", "float", "1"},
      low{"low", "float", "0"};
  ops.add({.name = "RandomNormal",
           .inputs = "",
           .outputs = "output",
           .attributes = {dtype, mean, scale, seed, shape},
           .infer = infer_random,
           .doc = "numbers of a normal distribution, by the seed",
           .since = 22});
  ops.add({.name = "RandomUniform",
           .inputs = "",
           .outputs = "output",
           .attributes = {dtype, high, low, seed, shape},
           .infer = infer_random,
           .doc = "numbers of a uniform distribution, by the seed",
           .since = 22});
  ops.add({.name = "RandomNormalLike",
           .inputs = "input",
           .outputs = "output",
           .attributes = {dtype, mean, scale, seed},
           .infer = infer_random_like,
           .doc = "RandomNormal of the shape of `input`",
           .since = 22});
  ops.add({.name = "RandomUniformLike",
           .inputs = "input",
           .outputs = "output",
           .attributes = {dtype, high, low, seed},
           .infer = infer_random_like,
           .doc = "RandomUniform of the shape of `input`",
           .since = 22});
  ops.add({.name = "Bernoulli",
           .inputs = "input",
           .outputs = "output",
           .attributes = {dtype, seed},
           .infer = infer_random_like,
           .doc = "1 with probability x, otherwise 0, by the seed",
           .since = 22});
  ops.add({.name = "Multinomial",
           .inputs = "input",
           .outputs = "output",
           .attributes = {dtype, {"sample_size", "int", "1"}, seed},
           .ranks = "2",
           .infer = infer_multinomial,
           .doc = "classes drawn by their logarithmic probabilities, by the seed",
           .since = 22});
}

}  // namespace plait

// Sequences and optionals: lists of tensors of one type, each one packed tensor (core/base/packed_list.h). The importer writes
// optionals as lists of at most one, and lists whose parts are known as their parts.
#include "core/graph/infer.h"
#include "core/ops/base/rows.h"
#include "core/ops/families.h"

namespace plait {

namespace {

/// A list of operand 0's type, of a size that depends on its parts.
void infer_list(InferContext& context) { context.set(0, context.dtype(0), {context.unknown("list")}); }

PartDims of_tensor(const InferContext& context, int input) {
  const Dims* dims = context.dims(input);
  return dims ? PartDims{PartDims::What::dims, *dims} : PartDims();
}

void infer_construct(InferContext& context) {
  infer_list(context);
  PartDims parts{PartDims::What::none};
  for (int k = 0; k < context.inputs(); ++k) parts = merged(parts, of_tensor(context, k));
  context.set_parts(0, std::move(parts));
}

void infer_insert(InferContext& context) {
  infer_list(context);
  context.set_parts(0, merged(context.parts(0), of_tensor(context, 1)));
}

void infer_erase(InferContext& context) {
  infer_list(context);
  context.set_parts(0, context.parts(0));
}

/// The place of an axis attribute; nullopt outside of the rank.
std::optional<size_t> place_of_axis(const InferContext& context, int64_t fallback, size_t rank) {
  int64_t axis = context.attributes().integer("axis", fallback);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) return std::nullopt;
  return static_cast<size_t>(axis);
}

void infer_split_to_sequence(InferContext& context) {
  infer_list(context);
  PartDims parts = of_tensor(context, 0);
  const auto axis = place_of_axis(context, 0, parts.dims.size());
  if (!axis) return;
  const auto at = parts.dims.begin() + static_cast<std::ptrdiff_t>(*axis);
  if (context.has(1)) *at = Dim(-1);
  else if (context.attributes().integer("keepdims", 1) != 0) *at = Dim(1);
  else parts.dims.erase(at);
  context.set_parts(0, std::move(parts));
}

/// One number of 64 bits, the count.
void infer_empty_list(InferContext& context) {
  const DType dtype = dtype_attribute(context.attributes(), "dtype", DType::f32);
  const int bits = dtype_bits(dtype);
  if (bits < 8 || bits > 64) InferContext::fail("a sequence has elements of 8 to 64 bits");
  context.set(0, dtype, {Dim(64 / bits)});
  context.set_parts(0, {PartDims::What::none});
}

/// The dims of a part, as far as all parts have them; nullopt where the rank depends on the list.
std::optional<Dims> dims_of_part(InferContext& context) {
  PartDims parts = context.parts(0);
  if (parts.what != PartDims::What::dims) return std::nullopt;
  Dims dims = std::move(parts.dims);
  for (Dim& dim : dims)
    if (dim == Dim(-1)) dim = context.unknown("part");
  return dims;
}

void infer_parts(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (std::optional<Dims> dims = dims_of_part(context)) context.set_dims(0, std::move(*dims));
}

void infer_joined(InferContext& context) {
  context.set_type(0, context.dtype(0));
  std::optional<Dims> dims = dims_of_part(context);
  if (!dims) return;
  const bool stacks = context.attributes().integer("new_axis", 0) != 0;
  const auto axis = place_of_axis(context, 0, dims->size() + (stacks ? 1 : 0));
  if (!axis) return;
  const Dim along = context.unknown("along");
  if (stacks) dims->insert(dims->begin() + static_cast<std::ptrdiff_t>(*axis), along);
  else (*dims)[*axis] = along;
  context.set_dims(0, std::move(*dims));
}

void infer_length(InferContext& context) { context.set(0, DType::i64, {}); }

}  // namespace

void register_sequences(OpSet& ops) {
  ops.add({.name = "SequenceConstruct",
           .inputs = "inputs...",
           .outputs = "output_sequence",
           .infer = infer_construct,
           .makes_sequence = true,
           .doc = "a sequence of tensors",
           .since = 11});
  ops.add({.name = "SequenceEmpty",
           .inputs = "",
           .outputs = "output",
           .attributes = {{"dtype", "int", "1"}},
           .infer = infer_empty_list,
           .makes_sequence = true,
           .doc = "a sequence without parts",
           .since = 11});
  ops.add({.name = "SequenceInsert",
           .inputs = "input_sequence tensor position?",
           .outputs = "output_sequence",
           .ranks = "1, , 0-1",
           .infer = infer_insert,
           .makes_sequence = true,
           .doc = "a sequence with a tensor put in",
           .since = 11});
  ops.add({.name = "SequenceErase",
           .inputs = "input_sequence position?",
           .outputs = "output_sequence",
           .ranks = "1, 0-1",
           .infer = infer_erase,
           .makes_sequence = true,
           .doc = "a sequence without one part",
           .since = 11});
  ops.add({.name = "SequenceAt",
           .inputs = "input_sequence position",
           .outputs = "tensor",
           .ranks = "1, 0-1",
           .infer = infer_parts,
           .doc = "a part of a sequence",
           .since = 11});
  ops.add({.name = "SequenceLength",
           .inputs = "input_sequence",
           .outputs = "length",
           .ranks = "1",
           .infer = infer_length,
           .doc = "how many parts a sequence has",
           .since = 11});
  ops.add({.name = "SplitToSequence",
           .inputs = "input split?",
           .outputs = "output_sequence",
           .attributes = {{"axis", "int", "0"}, {"keepdims", "int", "1"}},
           .ranks = "1-, 0-1",
           .infer = infer_split_to_sequence,
           .makes_sequence = true,
           .doc = "the parts of an axis as a sequence",
           .since = 24});
  ops.add({.name = "ConcatFromSequence",
           .inputs = "input_sequence",
           .outputs = "concat_result",
           .attributes = {{"axis", "int", "required"}, {"new_axis", "int", "0"}},
           .ranks = "1",
           .infer = infer_joined,
           .doc = "the parts of a sequence together",
           .since = 11});
}

}  // namespace plait

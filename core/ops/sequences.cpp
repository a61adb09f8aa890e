// Sequences and optionals: lists of tensors of one type, each one packed tensor (core/base/packed_list.h). The importer writes
// optionals as lists of at most one, and lists whose parts are known as their parts.
#include "core/ops/base/rows.h"
#include "core/ops/families.h"

namespace plait {

namespace {

/// A list of operand 0's type, of a size that depends on its parts.
void infer_list(InferContext& context) { context.set(0, context.dtype(0), {context.unknown("list")}); }

/// One number of 64 bits, the count.
void infer_empty_list(InferContext& context) {
  const DType dtype = dtype_attribute(context.attributes(), "dtype", DType::f32);
  const int bits = dtype_bits(dtype);
  if (bits < 8 || bits > 64) InferContext::fail("a sequence has elements of 8 to 64 bits");
  context.set(0, dtype, {Dim(64 / bits)});
}

/// A tensor whose rank depends on the list.
void infer_part(InferContext& context) { context.set_type(0, context.dtype(0)); }

void infer_length(InferContext& context) { context.set(0, DType::i64, {}); }

}  // namespace

void register_sequences(OpSet& ops) {
  ops.add({.name = "SequenceConstruct",
           .inputs = "inputs...",
           .outputs = "output_sequence",
           .infer = infer_list,
           .doc = "a sequence of tensors",
           .since = 11});
  ops.add({.name = "SequenceEmpty",
           .inputs = "",
           .outputs = "output",
           .attributes = {{"dtype", "int", "1"}},
           .infer = infer_empty_list,
           .doc = "a sequence without parts",
           .since = 11});
  ops.add({.name = "SequenceInsert",
           .inputs = "input_sequence tensor position?",
           .outputs = "output_sequence",
           .ranks = "1, , 0-1",
           .infer = infer_list,
           .doc = "a sequence with a tensor put in",
           .since = 11});
  ops.add({.name = "SequenceErase",
           .inputs = "input_sequence position?",
           .outputs = "output_sequence",
           .ranks = "1, 0-1",
           .infer = infer_list,
           .doc = "a sequence without one part",
           .since = 11});
  ops.add({.name = "SequenceAt",
           .inputs = "input_sequence position",
           .outputs = "tensor",
           .ranks = "1, 0-1",
           .infer = infer_part,
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
           .infer = infer_list,
           .doc = "the parts of an axis as a sequence",
           .since = 24});
  ops.add({.name = "ConcatFromSequence",
           .inputs = "input_sequence",
           .outputs = "concat_result",
           .attributes = {{"axis", "int", "required"}, {"new_axis", "int", "0"}},
           .ranks = "1",
           .infer = infer_part,
           .doc = "the parts of a sequence together",
           .since = 11});
}

}  // namespace plait

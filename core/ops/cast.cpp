// Changes of the element type.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

void convert(InferContext& context, DType to) {
  context.set_type(0, to);
  const Dims* elements = context.contents(0);
  // Casts through other integers and bool keep numbers; the bool of a number, whether it is zero, is left to the run.
  bool stays = is_integer(to) || (to == DType::boolean && context.dtype(0) == DType::boolean);
  if (elements && stays) context.set_contents(0, *elements);
}

void infer_cast(InferContext& context) {
  convert(context, dtype_attribute(context.attributes(), "to", DType::none));
}
void infer_bit_cast(InferContext& context) {
  DType from = context.dtype(0), to = dtype_attribute(context.attributes(), "to", DType::none);
  if (from != DType::none && dtype_bits(from) != dtype_bits(to))
    InferContext::fail(cat("the bits of ", dtype_name(from), " are no ", dtype_name(to)));
  context.set_type(0, to);
}
void infer_cast_like(InferContext& context) { convert(context, context.dtype(1)); }

/// Linear if nothing is rounded: to a float type of as many bits or more.
std::string cast_dims(const std::vector<Type>& in, const std::vector<Type>& out) {
  DType from = in[0].dtype, to = out[0].dtype;
  bool exact = is_float(from) && is_float(to) && (from == to || dtype_bits(to) > dtype_bits(from));
  return exact ? "*..." : "...";
}

}  // namespace

void register_cast(OpSet& ops) {
  ops.add({.name = "Cast", .inputs = "x", .outputs = "y",
           .attributes = {{"to", "int", "required"}, {"saturate", "int", "1"}, {"round_mode", "string", "up"}},
           .dims = "... -> ...",
           .dims_of = [](const Node&, const std::vector<Type>& in,
                         const std::vector<Type>& out) { return cast_dims(in, out) + " -> ..."; },
           .infer = infer_cast, .doc = "x as another element type", .since = 24});
  ops.add({.name = "BitCast", .inputs = "input", .outputs = "output", .attributes = {{"to", "int", "required"}},
           .dims = "... -> ...", .infer = infer_bit_cast, .doc = "the same bits as another element type", .since = 26});
  ops.add({.name = "CastLike", .inputs = "x like", .outputs = "y",
           .attributes = {{"saturate", "int", "1"}, {"round_mode", "string", "up"}}, .dims = "..., a -> ...",
           .dims_of = [](const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
             return cast_dims(in, out) + ", " + spaced(all_whole(dim_names(rank_of(in[1])))) + " -> ...";
           },
           .infer = infer_cast_like, .doc = "x as the element type of `like`", .since = 24});
}

}  // namespace plait

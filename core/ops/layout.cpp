// Ops that move elements: transpose, expand, tile, pad, concat, depth and space.
#include <algorithm>

#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

// ---- Transpose ----

std::vector<int64_t> permutation(const Attributes& attributes, size_t rank) {
  std::vector<int64_t> perm = attributes.integers("perm");
  if (perm.empty())
    for (size_t i = rank; i-- > 0;) perm.push_back(static_cast<int64_t>(i));
  return perm;
}

void infer_transpose(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  std::vector<int64_t> perm = permutation(context.attributes(), dims->size());
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i)) InferContext::fail("attribute \"perm\" is no permutation");
  if (perm.size() != dims->size())
    InferContext::fail(cat("attribute \"perm\" has ", perm.size(), " entries, the input rank ", dims->size()));
  Dims out;
  for (int64_t axis : perm) out.push_back((*dims)[static_cast<size_t>(axis)]);
  context.set_dims(0, std::move(out));
  if (const Dims* elements = context.contents(0)) context.set_contents(0, *elements);
}

std::string transpose_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames before = dim_names(rank_of(in[0])), after;
  for (int64_t axis : permutation(node.attributes, before.size()))
    after.push_back(before.at(static_cast<size_t>(axis)));
  return rule_text({"*" + spaced(before)}, {spaced(after)});
}

// ---- Expand ----

/// Broadcasts two aligned sizes. A constant above 1 wins over a symbol, which must equal it or 1; of two symbols the
/// target's wins: a symbol is 1 at run time only if a target is larger.
Dim broadcast(const Dim& input, const Dim& target) {
  // -1 is PyTorch's "unchanged": exporters pass it on, and ONNX Runtime accepts it.
  if (is_one(target) || target == Dim(-1)) return input;
  if (is_one(input) || input == target) return target;
  if (input.is_constant() && target.is_constant())
    InferContext::fail(cat("a dimension of ", input.constant(), " does not broadcast to ", target.constant()));
  return input.is_constant() ? input : target;
}

void infer_expand(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  const Dims* target = context.contents(1);
  if (!dims) return;
  if (!target) {
    std::optional<size_t> length = known_length(context.dims(1));
    if (!length) return;
    Dims out = unknown_dims(context, std::max(*length, dims->size()), "expand");
    for (size_t i = 1; i <= dims->size(); ++i)  // sizes other than 1 are unchanged
      if (const Dim& dim = (*dims)[dims->size() - i]; dim.is_constant() && !is_one(dim)) out[out.size() - i] = dim;
    context.set_dims(0, std::move(out));
    return;
  }
  size_t rank = std::max(dims->size(), target->size());
  Dims out;
  for (size_t i = 0; i < rank; ++i) {
    // Position i of the result is position i - (rank - own rank) of each side, if that is not negative.
    size_t a = i + dims->size(), b = i + target->size();
    out.push_back(broadcast(a < rank ? Dim(1) : (*dims)[a - rank], b < rank ? Dim(1) : (*target)[b - rank]));
  }
  const Dims* elements = context.contents(0);
  if (elements && rank == 0) context.set_contents(0, *elements);
  const bool listed = rank == 1 && out[0].is_constant() && out[0].constant() >= 0 && out[0].constant() <= 64;
  if (const Dim* value = single(elements); value && listed)
    context.set_contents(0, Dims(static_cast<size_t>(out[0].constant()), *value));
  else if (elements && rank == 1 && !single(elements)) context.set_contents(0, *elements);
  context.set_dims(0, std::move(out));
}

std::string expand_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims) return "";
  const Dims &from = *in[0].dims, &to = *out[0].dims;
  DimNames before, after = dim_names(to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    std::string& result = after[to.size() - from.size() + i];
    const Dim& size = to[to.size() - from.size() + i];
    if (is_one(from[i]) || from[i] == size) {
      before.push_back(is_one(from[i]) ? "1" : result);
      if (is_one(size)) result = "1";
      continue;
    }
    // A size that may be 1 or the target's at run time: whole on both sides.
    before.push_back(whole(factor_name(to.size() + i)));
    result = whole(result);
  }
  return rule_text({"*" + spaced(before), whole("shape")}, {spaced(after)});
}

// ---- Tile, Pad ----

void infer_tile(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  const Dims* repeats = context.contents(1);
  if (!repeats) return context.set_dims(0, unknown_dims(context, dims->size(), "tile"));
  if (repeats->size() != dims->size())
    InferContext::fail(cat("there are ", repeats->size(), " repeats, the input has rank ", dims->size()));
  Dims out;
  for (size_t i = 0; i < dims->size(); ++i) out.push_back((*dims)[i] * (*repeats)[i]);
  context.set_dims(0, std::move(out));
}

/// A dim repeated once is unchanged; others are whole.
std::string tile_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims) return "";
  DimNames before = dim_names(rank_of(in[0])), after = before;
  for (size_t i = 0; i < before.size(); ++i) {
    if ((*in[0].dims)[i] == (*out[0].dims)[i]) continue;
    before[i] = whole(before[i]);
    after[i] = whole(factor_name(before.size() + i));
  }
  return rule_text({"*" + spaced(before), whole("repeats")}, {spaced(after)});
}

void infer_pad(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  const Dims* pads = context.contents(1);
  std::optional<std::vector<int64_t>> axes = numbers(context.contents(3));
  if (!pads || (context.has(3) && !axes)) return context.set_dims(0, unknown_dims(context, dims->size(), "pad"));
  if (!axes) {
    axes.emplace();
    for (size_t i = 0; i < dims->size(); ++i) axes->push_back(static_cast<int64_t>(i));
  }
  if (pads->size() != 2 * axes->size())
    InferContext::fail(cat("there are ", pads->size(), " pads for ", axes->size(), " axes"));
  Dims out = *dims;
  for (size_t i = 0; i < axes->size(); ++i) {
    Dim& dim = out[checked_axis((*axes)[i], dims->size())];
    dim = dim + (*pads)[i] + (*pads)[i + axes->size()];
  }
  context.set_dims(0, std::move(out));
}

// ---- Concat ----

void infer_concat(InferContext& context) {
  context.set_type(0, context.dtype(0));
  for (int k = 0; k < context.inputs(); ++k)
    if (!context.dims(k)) return;
  Dims out = *context.dims(0);
  size_t axis = checked_axis(context.attributes().integer("axis"), out.size());
  for (int k = 1; k < context.inputs(); ++k) {
    const Dims& dims = *context.dims(k);
    if (dims.size() != out.size())
      InferContext::fail(cat("input ", k, " has rank ", dims.size(), ", input 0 rank ", out.size()));
    for (size_t i = 0; i < out.size(); ++i) {
      if (i == axis) out[i] = out[i] + dims[i];
      else if (std::optional<Dim> both = unify(out[i], dims[i])) out[i] = *both;
      else
        InferContext::fail(
            cat("input ", k, " is ", dims[i].constant(), " on axis ", i, ", the inputs before ", out[i].constant()));
    }
  }
  bool flat = out.size() == 1;
  context.set_dims(0, std::move(out));
  Dims elements;
  for (int k = 0; flat && k < context.inputs(); ++k) {
    const Dims* part = context.contents(k);
    if (!part) return;
    elements.insert(elements.end(), part->begin(), part->end());
  }
  if (flat) context.set_contents(0, std::move(elements));
}

std::string concat_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  size_t rank = rank_of(in[0]);
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis"), rank);
  if (!axis) return "";
  DimNames names = dim_names(rank);
  std::vector<std::string> operands;
  auto with_axis = [&](size_t index) {
    names[*axis] = whole(factor_name(index));
    return spaced(names);
  };
  for (size_t k = 0; k < in.size(); ++k) operands.push_back("+" + with_axis(rank + k));
  return rule_text(operands, {with_axis(rank + in.size())});
}

// ---- DepthToSpace, SpaceToDepth, ReverseSequence ----

void infer_blocks(InferContext& context, bool to_space) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  if (dims->size() != 4) InferContext::fail(cat("the input has rank ", dims->size(), ", expected 4"));
  int64_t size = context.attributes().integer("blocksize");
  if (size < 1) InferContext::fail(cat("attribute \"blocksize\" is ", size));
  Dim block(size);
  auto quotient = [&](const Dim& size, const Dim& by) {
    std::optional<Dim> exact = size.divided(by);
    if (!exact && size.is_constant()) InferContext::fail("a dimension does not divide by the block size");
    return exact ? *exact : context.unknown("blocks");
  };
  Dims out = *dims;
  out[1] = to_space ? quotient(out[1], block * block) : out[1] * block * block;
  for (size_t i : {size_t{2}, size_t{3}}) out[i] = to_space ? out[i] * block : quotient(out[i], block);
  context.set_dims(0, std::move(out));
}

/// The blocks are two equal factors, with different names and whole.
std::string space_dims(const Node& node, const std::vector<Type>&, const std::vector<Type>&) {
  bool crd = node.attributes.string("mode", "DCR") == "CRD";
  return cat("*b ", crd ? "(c [i] [j])" : "([i] [j] c)", " y x -> b c (y [i]) (x [j])");
}

std::string depth_dims(const Node& node, const std::vector<Type>&, const std::vector<Type>&) {
  bool crd = node.attributes.string("mode", "DCR") == "CRD";
  return cat("*b c (y [i]) (x [j]) -> b ", crd ? "(c [i] [j])" : "([i] [j] c)", " y x");
}

}  // namespace

void register_layout(OpSet& ops) {
  ops.add({.name = "Transpose",
           .inputs = "data",
           .outputs = "transposed",
           .attributes = {{"perm", "ints", ""}},
           .dims = "*b s g d -> b g s d",
           .dims_of = transpose_dims,
           .infer = infer_transpose,
           .doc = "the dims in another order (reversed when none is given)",
           .since = 24});
  ops.add({.name = "Expand",
           .inputs = "input shape",
           .outputs = "output",
           .dims = "*b 1 h, [n] -> b s h",
           .dims_of = expand_dims,
           .target = 1,
           .infer = infer_expand,
           .doc = "broadcast to a shape",
           .since = 13});
  ops.add({.name = "Tile",
           .inputs = "input repeats",
           .outputs = "output",
           .dims = "*b [s] h, [n] -> b [t] h",
           .dims_of = tile_dims,
           .infer = infer_tile,
           .doc = "the whole repeated along each dim",
           .since = 13});
  // No rule: pads of +1 and -1 shift a dim without changing its size, so sizes do not show which dims are free.
  ops.add({.name = "Pad",
           .inputs = "data pads constant_value? axes?",
           .outputs = "output",
           .attributes = {{"mode", "string", "constant"}},
           .infer = infer_pad,
           .doc = "more (or fewer) elements at both ends of each dim",
           .since = 24});
  ops.add({.name = "Concat",
           .inputs = "inputs...",
           .outputs = "concat_result",
           .attributes = {{"axis", "int", "required"}},
           .dims = "+b [s] h, +b [t] h -> b [u] h",
           .dims_of = concat_dims,
           .infer = infer_concat,
           .doc = "one after the other along a dim",
           .since = 13});
  ops.add({.name = "DepthToSpace",
           .inputs = "input",
           .outputs = "output",
           .attributes = {{"blocksize", "int", "required"}, {"mode", "string", "DCR"}},
           .dims = "*b ([i] [j] c) y x -> b c (y [i]) (x [j])",
           .dims_of = space_dims,
           .infer = [](InferContext& context) { infer_blocks(context, true); },
           .doc = "blocks of the depth laid out in space",
           .since = 13});
  ops.add({.name = "SpaceToDepth",
           .inputs = "input",
           .outputs = "output",
           .attributes = {{"blocksize", "int", "required"}, {"mode", "string", "DCR"}},
           .dims = "*b c (y [i]) (x [j]) -> b ([i] [j] c) y x",
           .dims_of = depth_dims,
           .infer = [](InferContext& context) { infer_blocks(context, false); },
           .doc = "blocks of space laid out in depth",
           .since = 13});
  ops.add({.name = "ReverseSequence",
           .inputs = "input sequence_lens",
           .outputs = "output",
           .attributes = {{"batch_axis", "int", "1"}, {"time_axis", "int", "0"}},
           .dims = "*[t] b ..., b -> [t] b ...",
           .dims_of = [](const Node& node, const std::vector<Type>&, const std::vector<Type>&) -> std::string {
             int64_t batch = node.attributes.integer("batch_axis", 1), time = node.attributes.integer("time_axis", 0);
             if ((batch != 0 || time != 1) && (batch != 1 || time != 0)) return "";
             return batch ? "*[t] b ..., b -> [t] b ..." : "*b [t] ..., b -> b [t] ...";
           },
           .infer = infer_same,
           .doc = "the first elements of each sequence reversed, by its length",
           .since = 10});
}

}  // namespace plait

// Ops that write at indices into a copy of their first operand.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// Dims that no index addresses are free if updates have their whole size; indices are tuples of the leading dims.
std::string scatter_nd_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  if (in[1].dims->empty() || !in[1].dims->back().is_constant()) return "";
  auto depth = static_cast<size_t>(in[1].dims->back().constant());
  DimNames data = dim_names(rank_of(in[0])), indices = all_whole(dim_names(rank_of(in[1]), data.size()));
  if (depth > data.size()) return "";
  DimNames updates(indices.begin(), indices.end() - 1);
  updates.insert(updates.end(), data.begin() + static_cast<std::ptrdiff_t>(depth), data.end());
  for (size_t i = 0; i < depth; ++i) data[i] = whole(data[i]);
  // Replacing and adding are linear in data and updates together; products and extremes are not.
  std::string reduction = node.attributes.string("reduction", "none");
  std::string plus = reduction == "none" || reduction == "add" ? "+" : "";
  return rule_text({plus + spaced(data), spaced(indices), plus + spaced(updates)}, {spaced(data)});
}

std::string scatter_elements_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames data = dim_names(rank_of(in[0])), indices = data;
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 0), data.size());
  if (!axis || rank_of(in[1]) != data.size()) return "";
  for (size_t i = 0; i < data.size(); ++i) {
    if (i != *axis && (*in[0].dims)[i] == (*in[1].dims)[i]) continue;
    indices[i] = whole(factor_name(data.size() + i));
    data[i] = whole(data[i]);
  }
  std::string reduction = node.attributes.string("reduction", "none");
  std::string plus = reduction == "none" || reduction == "add" ? "+" : "";
  return rule_text({plus + spaced(data), spaced(indices), plus + spaced(indices)}, {spaced(data)});
}

/// past_cache [b, ..., max, ...], update [b, ..., t, ...]: the axis (counted in the cache) is whole.
std::string tensor_scatter_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames cache = dim_names(rank_of(in[0])), update = cache;
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", -2), cache.size());
  if (!axis || *axis == 0) return "";
  update[*axis] = whole(factor_name(cache.size()));
  cache[*axis] = whole(cache[*axis]);
  return rule_text({"+" + spaced(cache), "+" + spaced(update), cache[0]}, {spaced(cache)});
}

/// Strings can only be replaced.
void infer_scattered(InferContext& context) {
  const std::string reduction = context.attributes().string("reduction", "none");
  if (context.dtype(0) == DType::string && reduction != "none")
    InferContext::fail(cat("attribute \"reduction\" is ", quote(reduction), ", and data are strings, which can only be replaced"));
  infer_same(context);
}

}  // namespace

void register_scatter(OpSet& ops) {
  ops.add({.name = "ScatterND",
           .inputs = "data indices updates",
           .outputs = "output",
           .attributes = {{"reduction", "string", "none"}},
           .dims = "+[s] h, [n] [k], +[n] h -> [s] h",
           .dims_of = scatter_nd_dims,
           .infer = infer_scattered,
           .doc = "data with parts named by tuples of indices replaced",
           .since = 18});
  ops.add({.name = "ScatterElements", .inputs = "data indices updates", .outputs = "output",
           .attributes = {{"axis", "int", "0"}, {"reduction", "string", "none"}},
           .dims = "+b [s] h, b [t] h, +b [t] h -> b [s] h", .dims_of = scatter_elements_dims, .infer = infer_scattered,
           .doc = "data with elements of an axis replaced, each by its own index", .since = 18});
  ops.add({.name = "TensorScatter", .inputs = "past_cache update write_indices?", .outputs = "present_cache",
           .attributes = {{"axis", "int", "-2"}, {"mode", "string", "linear"}},
           .dims = "+b g [s] d, +b g [t] d, b -> b g [s] d", .dims_of = tensor_scatter_dims, .infer = infer_same,
           .doc = "a fixed cache with new positions written from an index on, linear or circular", .since = 24});
}

}  // namespace plait

// Attributes of a node of the graph of ranks, and what rank's blocks it has.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/mesh/placement.h"

namespace plait {
namespace {

int64_t blocks_of(const std::string& factor, const FactorAxes& axes, const Mesh& mesh) {
  auto cut = axes.find(factor);
  return cut == axes.end() ? 1 : mesh.blocks(cut->second);
}

/// The local value of an attribute that is the product of the sizes of leading factors in its row.
int64_t local_count(int64_t count, const std::string& counted, const NodeRule& node, const FactorAxes& axes,
                    const Mesh& mesh) {
  int64_t size = 1, parts = 1;
  for (const std::string& factor : split(counted, ' ')) {
    auto known = node.sizes.find(factor);
    if (size == count || known == node.sizes.end() || !known->second.is_constant()) break;
    size *= known->second.constant();
    parts *= blocks_of(factor, axes, mesh);
  }
  return size == count ? count / parts : count;
}

}  // namespace

void localize(Node& node, const OpSchema& schema, const NodeRule& rule, const FactorAxes& axes, const Mesh& mesh) {
  for (const AttributeRow& row : schema.attributes) {
    if (row.counts.empty() || !node.attributes.has(row.name)) continue;
    const int64_t count = node.attributes.integer(row.name);
    node.attributes.set(row.name, local_count(count, row.counts, rule, axes, mesh));
  }
  for (const FactorUse& use : rule.uses) {
    auto cut = axes.find(use.factor.name);
    if (!use.factor.offset || cut == axes.end() || cut->second.empty()) continue;
    node.attributes.set("offset_axes", mesh.text(cut->second));
    node.attributes.set("whole", rule.sizes.at(use.factor.name).constant());
  }
  const bool divides_by_count = std::any_of(schema.attributes.begin(), schema.attributes.end(),
                                            [](const AttributeRow& row) { return row.name == "shards"; });
  if (const int64_t parts = summands(rule, axes, mesh); divides_by_count && parts > 1)
    node.attributes.set("shards", parts);
}

bool depends_on_rank(const Node& node) { return node.attributes.has("offset_axes"); }

Node at_rank(Node node, const Mesh& mesh, int64_t rank) {
  if (!depends_on_rank(node)) return node;
  const AxisList axes = mesh.parse_axes(node.attributes.string("offset_axes", ""));
  node.attributes.erase("offset_axes");
  node.attributes.set("offset", node.attributes.integer("whole") / mesh.blocks(axes) * mesh.block(rank, axes));
  return node;
}

std::shared_ptr<const Constant> at_rank(std::shared_ptr<const Constant> constant, const Mesh& mesh, int64_t rank) {
  const auto is_part = [](const RecipeStep& step) { return step.kind == RecipeStep::Kind::part; };
  if (!constant || std::none_of(constant->steps.begin(), constant->steps.end(), is_part)) return constant;
  auto out = std::make_shared<Constant>(*constant);
  std::vector<RecipeStep> steps = std::exchange(out->steps, {});
  for (RecipeStep& step : steps) {
    if (is_part(step)) {
      const int64_t axis = step.numbers[0], size = out->shape()[static_cast<int>(axis)] / step.numbers[1];
      const AxisList axes(step.numbers.begin() + 2, step.numbers.end());
      const int64_t begin = size * mesh.block(rank, axes);
      step = {RecipeStep::Kind::slice, {axis, begin, begin + size}};
    }
    out->steps.push_back(std::move(step));
  }
  return out;
}

}  // namespace plait

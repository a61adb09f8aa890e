// Attributes of a node on one rank.
#include <algorithm>

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

void localize(Node& node, const OpSchema& schema, const NodeRule& rule, const FactorAxes& axes, const Mesh& mesh,
              int64_t rank) {
  for (const AttributeRow& row : schema.attributes) {
    if (row.counts.empty() || !node.attributes.has(row.name)) continue;
    const int64_t count = node.attributes.integer(row.name);
    node.attributes.set(row.name, local_count(count, row.counts, rule, axes, mesh));
  }
  for (const FactorUse& use : rule.uses) {
    auto cut = axes.find(use.factor.name);
    if (!use.factor.offset || cut == axes.end() || cut->second.empty()) continue;
    const int64_t whole = rule.sizes.at(use.factor.name).constant();
    node.attributes.set("offset", whole / mesh.blocks(cut->second) * mesh.block(rank, cut->second));
    node.attributes.set("whole", whole);
  }
  const bool divides_by_count = std::any_of(schema.attributes.begin(), schema.attributes.end(),
                                            [](const AttributeRow& row) { return row.name == "shards"; });
  if (const int64_t parts = summands(rule, axes, mesh); divides_by_count && parts > 1)
    node.attributes.set("shards", parts);
}

}  // namespace plait

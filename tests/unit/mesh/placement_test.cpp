// One node on a mesh: which cuts a rule allows, what the results owe, and which sums may stay unpaid after the node.
#include "core/mesh/placement.h"

#include <gmock/gmock.h>

#include "core/base/text.h"

namespace plait::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A node of operands with these constant sizes.
NodeRule node_of(const std::string& rule, const std::vector<Dims>& operands, const std::vector<Dims>& results) {
  DimsList in, out;
  for (const Dims& dims : operands) in.push_back(&dims);
  for (const Dims& dims : results) out.push_back(&dims);
  const DimsRule parsed = parse_dims_rule(rule);
  return {parsed, factor_sizes(parsed, in, out)};
}

/// Where operands and results are: "[-, tensor] ; [tensor, -] -> [-, -] sum(tensor)"; or why they cannot be.
std::string placed(const NodeRule& node, const std::vector<std::pair<std::string, std::string>>& cuts,
                   const Mesh& mesh) {
  FactorAxes axes;
  for (const auto& [factor, text] : cuts) axes[factor] = mesh.parse_axes(text);
  std::string why;
  const std::optional<Placement> placement = place(node, axes, mesh, &why);
  if (!placement) return why;
  std::vector<std::string> operands, results;
  for (const Sharding& one : placement->operands) operands.push_back(text(one, mesh));
  for (const Sharding& one : placement->results) results.push_back(text(one, mesh));
  return cat(join(operands, " ; "), " -> ", join(results, " ; "));
}

TEST(Place, AContractedFactorLeavesASum) {
  const Mesh mesh = Mesh::parse("tensor=2");
  const NodeRule product = node_of("*t k, *n k -> t n", {{6, 8}, {4, 8}}, {{6, 4}});
  EXPECT_EQ(placed(product, {{"n", "tensor"}}, mesh), "[-, -] ; [tensor, -] -> [-, tensor]");
  EXPECT_EQ(placed(product, {{"k", "tensor"}}, mesh), "[-, tensor] ; [-, tensor] -> [-, -] sum(tensor)");
  EXPECT_EQ(placed(node_of("b h -> b {max}", {{2, 8}}, {{2}}), {{"h", "tensor"}}, mesh),
            "[-, tensor] -> [-] max(tensor)");
}

TEST(Place, AFactorThatAnotherResultHasLeavesNothing) {
  const Mesh mesh = Mesh::parse("tensor=2");
  const NodeRule write = node_of("g d, g e -> g d, g e", {{2, 8}, {2, 4}}, {{2, 8}, {2, 4}});
  EXPECT_EQ(placed(write, {{"e", "tensor"}}, mesh), "[-, -] ; [-, tensor] -> [-, -] ; [-, tensor]");
}

TEST(Place, OrASumWhereTheRuleSaysAll) {
  const Mesh mesh = Mesh::parse("data=2,tensor=2");
  const NodeRule back = node_of("t h f, h -> t h, h {all}", {{6, 8, 4}, {8}}, {{6, 8}, {8}});
  EXPECT_EQ(placed(back, {{"t", "data"}}, mesh), "[data, -, -] ; [-] -> [data, -] ; [-] sum(data)");
  EXPECT_EQ(placed(back, {{"h", "data"}, {"f", "tensor"}}, mesh),
            "[-, data, tensor] ; [data] -> [-, data] sum(tensor) ; [data] sum(tensor)");
}

TEST(Place, WhatMustBeWholeOrDoesNotDivideIsRefused) {
  const Mesh mesh = Mesh::parse("tensor=4");
  const NodeRule norm = node_of("t [h] -> t [h]", {{6, 8}}, {{6, 8}});
  EXPECT_THAT(placed(norm, {{"h", "tensor"}}, mesh), HasSubstr("factor h must be whole"));
  EXPECT_THAT(placed(norm, {{"t", "tensor"}}, mesh), HasSubstr("factor t does not divide into 4 parts"));
  EXPECT_EQ(placed(norm, {{"t", "tensor.0"}}, mesh), "[tensor.0, -] -> [tensor.0, -]") << "6 rows, 2 parts";
}

TEST(Place, ShardsOfACompoundDimAreContiguous) {
  const Mesh mesh = Mesh::parse("tensor=4");
  // 2 key heads with 4 queries each, on 4 ranks: the key heads take one sub-axis, their queries the other.
  const NodeRule heads = node_of("t (g r d), g -> t g r d", {{6, 64}, {2}}, {{6, 2, 4, 8}});
  EXPECT_EQ(placed(heads, {{"g", "tensor.0"}, {"r", "tensor.1"}}, mesh),
            "[-, tensor] ; [tensor.0] -> [-, tensor.0, tensor.1, -]");
  EXPECT_THAT(placed(heads, {{"r", "tensor.0"}}, mesh), HasSubstr("would not be contiguous"));
  EXPECT_THAT(placed(heads, {{"g", "tensor"}}, mesh), HasSubstr("factor g does not divide into 4 parts"));
}

/// By operand the axes that may stay unpaid: "tensor | -".
std::string passed(const std::string& rule, const std::vector<std::string>& operands, const Mesh& mesh,
                   const FactorAxes& axes = {}) {
  std::vector<std::vector<Pending>> owed;
  for (const std::string& operand : operands) owed.push_back(parse_sharding(operand, mesh).pending);
  std::vector<std::string> out;
  for (const AxisList& list : passing(parse_dims_rule(rule), owed, axes)) out.push_back(mesh.text(list));
  return join(out, " | ");
}

TEST(Passing, OfFactorsOneOfTermsAll) {
  const Mesh mesh = Mesh::parse("data=2,tensor=2");
  const char* const owes = "[-] sum(tensor)";
  EXPECT_EQ(passed("*b, *b -> b", {owes, "[-]"}, mesh), "tensor | -");
  EXPECT_EQ(passed("*b, *b -> b", {owes, owes}, mesh), "tensor | -") << "a product of sums is no sum of products";
  EXPECT_EQ(passed("*b, *b -> b", {owes, "[-] sum(data)"}, mesh), "tensor | data");
  EXPECT_EQ(passed("+b, +b -> b", {owes, "[-]"}, mesh), "- | -") << "what is whole would be added on every rank";
  EXPECT_EQ(passed("+b, +b -> b", {owes, owes}, mesh), "tensor | tensor");
  EXPECT_EQ(passed("b, +b, +b -> b", {"[-]", owes, owes}, mesh), "- | tensor | tensor");
}

TEST(Passing, OnlySumsWhereTheOpIsLinearAlongFreeAxes) {
  const Mesh mesh = Mesh::parse("data=2,tensor=2");
  EXPECT_EQ(passed("b -> b", {"[-] sum(tensor)"}, mesh), "-");
  EXPECT_EQ(passed("*b -> b", {"[-] max(tensor)"}, mesh), "-");
  EXPECT_EQ(passed("*b -> b", {"[-] sum(tensor)"}, mesh, {{"b", mesh.parts("data")}}), "tensor");
  EXPECT_EQ(passed("*b -> b", {"[-] sum(tensor)"}, mesh, {{"b", mesh.parts("tensor")}}), "-");
}

}  // namespace
}  // namespace plait::test

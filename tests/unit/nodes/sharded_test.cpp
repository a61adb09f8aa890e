// Every op on every mesh that its dims rule allows: the standard's own cases, cut, run on each rank's shards, and put
// together. A rule that allows too much, or forgets that something is pending, fails here; one that allows less than it
// did changes the counts in goldens/. What of a rule could be dropped, and no case would notice, is listed there, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/golden.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/mutations.h"

namespace plait::test {
namespace {

/// Sums are added in another order: f16 and bf16 are rounded each time.
double slack_of(const std::vector<Tensor>& operands) {
  double slack = 1e-5;
  for (const Tensor& tensor : operands)
    if (tensor.dtype() == DType::f16 || tensor.dtype() == DType::bf16) slack = 2e-2;
  return slack;
}

bool readable(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    return !tensor.present() ||
           (tensor.dtype() != DType::string && dtype_bits(tensor.dtype()) >= 8 && tensor.dtype() <= DType::bf16);
  });
}

/// The operands of the one node of a case, in its order; nullopt where the case is no single node on numbers.
std::optional<std::vector<Tensor>> operands_of(const Graph& graph, const DataSet& data) {
  if (graph.nodes.size() != 1 || !graph.nodes[0].bodies.empty()) return std::nullopt;
  std::vector<Tensor> out;
  for (ValueId id : graph.nodes[0].inputs) {
    if (id == no_value) {
      out.emplace_back();
      continue;
    }
    auto input = std::find(graph.inputs.begin(), graph.inputs.end(), id);
    if (input != graph.inputs.end()) out.push_back(data.inputs.at(static_cast<size_t>(input - graph.inputs.begin())));
    else if (const Tensor* constant = graph.constant(id)) out.push_back(*constant);
    else return std::nullopt;
  }
  if (!readable(out) || !readable(data.outputs)) return std::nullopt;
  return out;
}

/// Calls visit(case, node, operands) for every case that is one node which Plait takes.
template <class Visit>
void each_node(Visit visit) {
  const CompileOptions options = World::get().options();
  for (const std::string& name : case_names()) {
    Judged judged = judge(name, options);
    if (!judged.graph) continue;
    for (const DataSet& data : data_sets(name))
      if (std::optional<std::vector<Tensor>> operands = operands_of(*judged.graph, data))
        visit(name, judged.graph->nodes[0], *operands);
  }
}

TEST(Sharded, StandardsCasesEqualTheWhole) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  std::map<std::string, Tried> tried;
  each_node([&](const std::string& name, const Node& node, const std::vector<Tensor>& operands) {
    SCOPED_TRACE(name);
    for (const char* mesh : {"tensor=2", "tensor=4", "tensor=3"})
      tried[node.op].add(
          expect_sharded_equals_whole(World::get().kernels, node, operands, Mesh::parse(mesh), slack_of(operands)));
  });
  expect_golden("tests/unit/nodes/goldens/standard_placements.golden", counts_text(tried), "unit.nodes");
  EXPECT_GT(std::count_if(tried.begin(), tried.end(), [](const auto& one) { return one.second.placements > 0; }), 90);
}

TEST(Sharded, StandardsCasesNoticeWhatARuleLacks) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  Mutants mutants;
  each_node([&](const std::string& name, const Node& node, const std::vector<Tensor>& operands) {
    SCOPED_TRACE(name);
    mutants.run(World::get().kernels, node, operands, {"tensor=2", "tensor=3", "tensor=5"}, slack_of(operands));
  });
  expect_golden("tests/unit/nodes/goldens/standard_survivors.golden", mutants.survivors(), "unit.nodes");
}

}  // namespace
}  // namespace plait::test

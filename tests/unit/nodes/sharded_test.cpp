// Every op on every mesh that its dims rule allows: the standard's own cases, cut, run on each rank's shards, and put
// together. A rule that allows too much, or forgets that something is pending, fails here.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/sharded.h"

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

TEST(Sharded, StandardsCasesEqualTheWhole) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  const CompileOptions options = World::get().options();
  std::map<std::string, Tried> tried;
  for (const std::string& name : case_names()) {
    Judged judged = judge(name, options);
    if (!judged.graph) continue;
    for (const DataSet& data : data_sets(name)) {
      std::optional<std::vector<Tensor>> operands = operands_of(*judged.graph, data);
      if (!operands) continue;
      SCOPED_TRACE(name);
      const std::string& op = judged.graph->nodes[0].op;
      for (const char* mesh : {"tensor=2", "tensor=4", "tensor=3"}) {
        Tried one = expect_sharded_equals_whole(World::get().kernels, judged.graph->nodes[0], *operands,
                                                Mesh::parse(mesh), slack_of(*operands));
        tried[op].placements += one.placements;
        tried[op].factors.merge(one.factors);
      }
    }
  }
  int placements = 0, ops = 0;
  for (const auto& [op, one] : tried) placements += one.placements, ops += one.placements > 0;
  std::printf("%d placements of %d ops\n", placements, ops);
  EXPECT_GT(ops, 90);
}

}  // namespace
}  // namespace plait::test

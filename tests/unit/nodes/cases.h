#pragma once
// The ONNX standard's own node tests: a folder a case, with model.onnx and test_data_set_N/{input,output}_K.pb.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/graph/graph.h"
#include "core/passes/base/pass.h"

namespace plait::test {

/// Only the reference kernels, which compute in double.
const CompileOptions& reference_options();

/// Where tests/unit/nodes/fetch.sh puts them: PLAIT_NODE_CASES, or .cache/onnx-node-cases of the repository.
std::filesystem::path case_folder();

/// All cases of nodes, by name; empty where they have not been fetched.
std::vector<std::string> case_names();
/// Those of models, which the onnx package contains.
std::vector<std::string> model_names();

/// An op as a model uses it: domain "" is the standard's own.
struct OpUse {
  std::string domain, op;
  int64_t opset;
  bool operator<(const OpUse& other) const {
    return std::tie(domain, op, opset) < std::tie(other.domain, other.op, other.opset);
  }
};

/// The ops of a case's model, those in bodies included, each once.
std::vector<OpUse> ops_of(const std::string& name);

struct DataSet {
  std::vector<Tensor> inputs, outputs;  ///< in the order of the graph's
};
/// Throws Error(unsupported) when a file holds something else than a tensor of numbers.
std::vector<DataSet> data_sets(const std::string& name);

/// The result for a case: its graph, which compiles, or the refusal of the first node that is not claimed.
struct Judged {
  std::optional<Graph> graph;
  std::string refusal;
};
/// Errors that are no refusal (Code::unsupported) are thrown on. Kernels are the reference ones.
Judged judge(const std::string& name, const CompileOptions& options);

/// Calls visit(case, node, operands) for every data set of every case that is one node, of numbers, which Plait takes.
using NodeVisit = std::function<void(const std::string&, const Node&, const std::vector<Tensor>&)>;
void each_node(const CompileOptions& options, const NodeVisit& visit);

}  // namespace plait::test

#include "tests/unit/nodes/cases.h"

#include <onnx-ml.pb.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "importers/onnx/import.h"
#include "importers/onnx/tensor_reader.h"
#include "importers/onnx/typed_data.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

namespace fs = std::filesystem;

template <class Message>
Message read_message(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  Message out;
  if (!file || !out.ParseFromString(bytes.str())) throw Error(Code::io, cat(path.string(), " cannot be read"));
  return out;
}

void collect(const onnx::GraphProto& graph, const std::map<std::string, int64_t>& opsets, std::set<OpUse>& out) {
  for (const auto& node : graph.node()) {
    std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
    out.insert({domain, node.op_type(), opsets.at(domain)});
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) collect(attribute.g(), opsets, out);
  }
}

Tensor read_tensor(const fs::path& path) {
  auto proto = read_message<onnx::TensorProto>(path);
  DType dtype = onnx_import::dtype_of(proto.data_type());
  if (dtype == DType::string) throw Error(Code::unsupported, cat(path.string(), " holds strings"));
  Shape shape = onnx_import::shape_of({proto.dims().data(), static_cast<size_t>(proto.dims_size())}, dtype);
  if (!proto.has_raw_data()) return onnx_import::typed_tensor(proto, dtype, shape, "");
  const std::string& raw = proto.raw_data();
  return Tensor(dtype, shape, copy_blob(std::as_bytes(std::span(raw.data(), raw.size()))));
}

std::vector<Tensor> read_tensors(const fs::path& folder, const char* stem) {
  std::vector<Tensor> out;
  for (;;) {
    fs::path path = folder / cat(stem, out.size(), ".pb");
    if (!fs::exists(path)) return out;
    out.push_back(read_tensor(path));
  }
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

}  // namespace

const CompileOptions& reference_options() {
  static const KernelTable kernels = [] {
    KernelTable out;
    register_reference_kernels(out);
    return out;
  }();
  static const CompileOptions options{World::get().ops, kernels};
  return options;
}

fs::path case_folder() {
  const char* elsewhere = std::getenv("PLAIT_NODE_CASES");
  return elsewhere ? fs::path(elsewhere) : fs::path(PLAIT_SOURCE_DIR) / ".cache" / "onnx-node-cases";
}

std::vector<std::string> case_names() {
  std::set<std::string> out;
  if (fs::is_directory(case_folder()))
    for (const auto& entry : fs::directory_iterator(case_folder()))
      if (fs::exists(entry.path() / "model.onnx")) out.insert(entry.path().filename().string());
  return {out.begin(), out.end()};
}

std::vector<OpUse> ops_of(const std::string& name) {
  auto model = read_message<onnx::ModelProto>(case_folder() / name / "model.onnx");
  std::map<std::string, int64_t> opsets;
  for (const auto& row : model.opset_import()) opsets[row.domain() == "ai.onnx" ? "" : row.domain()] = row.version();
  std::set<OpUse> out;
  collect(model.graph(), opsets, out);
  return {out.begin(), out.end()};
}

std::vector<DataSet> data_sets(const std::string& name) {
  std::vector<DataSet> out;
  for (;;) {
    fs::path folder = case_folder() / name / cat("test_data_set_", out.size());
    if (!fs::exists(folder)) return out;
    out.push_back({read_tensors(folder, "input_"), read_tensors(folder, "output_")});
  }
}

Judged judge(const std::string& name, const CompileOptions& options) {
  Judged out;
  try {
    Graph graph = import_file((case_folder() / name / "model.onnx").string(), options.ops).graph;
    compile_plain(graph, options);
    out.graph = std::move(graph);
  } catch (const Error& error) {
    if (error.code() != Code::unsupported) throw;
    out.refusal = error.message();
  }
  return out;
}

void each_node(const CompileOptions& options, const NodeVisit& visit) {
  for (const std::string& name : case_names()) {
    Judged judged = judge(name, options);
    if (!judged.graph) continue;
    for (const DataSet& data : data_sets(name))
      if (std::optional<std::vector<Tensor>> operands = operands_of(*judged.graph, data))
        visit(name, judged.graph->nodes[0], *operands);
  }
}

}  // namespace plait::test

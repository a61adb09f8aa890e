#include "tests/unit/nodes/cases.h"

#include <onnx-ml.pb.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/packed_list.h"
#include "core/base/strings.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "importers/onnx/import.h"
#include "importers/onnx/lists.h"
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

Tensor tensor_in(const onnx::TensorProto& proto, const fs::path& path) {
  DType dtype = onnx_import::dtype_of(proto.data_type());
  Shape shape = onnx_import::shape_of({proto.dims().data(), static_cast<size_t>(proto.dims_size())}, dtype);
  if (dtype == DType::string) {
    const std::vector<std::string> texts(proto.string_data().begin(), proto.string_data().end());
    if (std::ssize(texts) != shape.elements()) throw Error(Code::bad_model, cat(path.string(), " has ", texts.size(), " strings"));
    return packed_strings(shape, texts);
  }
  if (!proto.has_raw_data()) return onnx_import::typed_tensor(proto, dtype, shape, "");
  const std::string& raw = proto.raw_data();
  return Tensor(dtype, shape, copy_blob(std::as_bytes(std::span(raw.data(), raw.size()))));
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

/// The contents of the fields of this number that are messages (onnx-data.proto, which the library does not read).
std::vector<std::string> fields_of(const std::string& message, uint64_t number) {
  std::vector<std::string> out;
  size_t at = 0;
  auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(message[at++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    if ((tag & 7) == 0) {
      varint();
      continue;
    }
    if ((tag & 7) != 2) throw Error(Code::bad_model, "a field of an unexpected kind");
    const uint64_t size = varint();
    if (tag >> 3 == number) out.push_back(message.substr(at, size));
    at += size;
  }
  return out;
}

/// A value of this type: sequences and optionals as packed lists.
Tensor value_in(const std::string& bytes, const onnx::TypeProto& type, const fs::path& path) {
  const ValueKind kind = onnx_import::kind_of(type);
  if (kind == ValueKind::tensor) {
    onnx::TensorProto proto;
    if (!proto.ParseFromString(bytes)) throw Error(Code::io, cat(path.string(), " cannot be read"));
    return tensor_in(proto, path);
  }
  constexpr uint64_t tensors = 3, sequence = 5;
  const DType dtype = onnx_import::dtype_of(onnx_import::tensor_type_of(type).tensor_type().elem_type());
  if (dtype == DType::string) throw Error(Code::unsupported, cat(path.string(), " holds lists of strings"));
  std::vector<Tensor> parts;
  const bool nested = kind == ValueKind::optional_sequence;
  for (const std::string& part : fields_of(bytes, nested ? sequence : tensors))
    parts.push_back(value_in(part, nested ? type.optional_type().elem_type() : onnx_import::tensor_type_of(type), path));
  std::vector<TensorView> views;
  for (const Tensor& part : parts) views.push_back(part.view());
  return packed_list(dtype, views);
}

template <class Infos>
std::vector<Tensor> read_values(const fs::path& folder, const char* stem, const Infos& infos) {
  std::vector<Tensor> out;
  for (const auto& info : infos) {
    fs::path path = folder / cat(stem, out.size(), ".pb");
    if (!fs::exists(path)) return out;
    out.push_back(value_in(bytes_of(path), info.type(), path));
  }
  return out;
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

static std::vector<std::string> names_with(std::string_view begin) {
  std::set<std::string> out;
  if (fs::is_directory(case_folder()))
    for (const auto& entry : fs::directory_iterator(case_folder()))
      if (const std::string name = entry.path().filename().string(); name.starts_with(begin) && fs::exists(entry.path() / "model.onnx"))
        out.insert(name);
  return {out.begin(), out.end()};
}

std::vector<std::string> case_names() { return names_with("test_"); }
std::vector<std::string> model_names() { return names_with("model_"); }

std::vector<OpUse> ops_of(const std::string& name) {
  auto model = read_message<onnx::ModelProto>(case_folder() / name / "model.onnx");
  std::map<std::string, int64_t> opsets;
  for (const auto& row : model.opset_import()) opsets[row.domain() == "ai.onnx" ? "" : row.domain()] = row.version();
  std::set<OpUse> out;
  collect(model.graph(), opsets, out);
  return {out.begin(), out.end()};
}

std::vector<DataSet> data_sets(const std::string& name) {
  const auto model = read_message<onnx::ModelProto>(case_folder() / name / "model.onnx");
  std::vector<DataSet> out;
  for (;;) {
    fs::path folder = case_folder() / name / cat("test_data_set_", out.size());
    if (!fs::exists(folder)) return out;
    out.push_back({read_values(folder, "input_", model.graph().input()), read_values(folder, "output_", model.graph().output())});
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

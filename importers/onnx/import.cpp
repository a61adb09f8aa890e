#include "importers/onnx/import.h"

#include <google/protobuf/stubs/logging.h>
#include <onnx-ml.pb.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <stdexcept>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "importers/onnx/device_reader.h"
#include "importers/onnx/functions.h"
#include "importers/onnx/graph_builder.h"
#include "importers/onnx/tensor_reader.h"
#include "importers/onnx/wire.h"

namespace plait {
namespace {

using namespace onnx_import;

// The newest versions that this reader supports.
constexpr int64_t newest_ir = 13;
constexpr int64_t newest_opset = 28;

/// Identifies files that are not models, for common mistakes.
void check_magic(std::span<const std::byte> file) {
  std::string_view text(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 512));
  if (text.empty()) throw Error(Code::bad_model, "the file is empty");
  if (text.starts_with("version https://git-lfs"))
    throw Error(Code::bad_model, "this is a git-lfs pointer, not the model itself",
                "run \"git lfs pull\" where it was cloned");
  if (text.starts_with("PK\x03\x04"))
    throw Error(Code::bad_model, "this is a zip archive, not an ONNX file", "unpack it first");
  bool printable = std::all_of(text.begin(), text.end(), [](char letter) {
    return (letter >= ' ' && letter < 0x7F) || letter == '\n' || letter == '\r' || letter == '\t';
  });
  if (printable)
    throw Error(Code::bad_model, cat("this is a text file, not an ONNX file; it begins with ", quote(text, 40)),
                "an ONNX file is binary; a web page of this name means that the download failed");
}

onnx::ModelProto parse(std::span<const std::byte> file) {
  // Our copy of the library is hidden: a host's settings of its own are not affected.
  static std::once_flag once;
  std::call_once(once, [] { google::protobuf::SetLogHandler(nullptr); });
  check_magic(file);
  std::string slim = slim_model(file);
  onnx::ModelProto model;
  if (!model.ParseFromString(slim))
    throw Error(Code::bad_model, "not a valid ONNX file: a message inside is malformed",
                "the file is truncated, damaged, or of another format; fetch or export it again");
  if (!model.has_graph()) throw Error(Code::bad_model, "not an ONNX model: the file holds no graph");
  if (model.ir_version() < 1) throw Error(Code::bad_model, cat("ir_version is ", model.ir_version()));
  return model;
}

/// Protocol Buffers' share of an import; the rest is building the graph.
constexpr double parse_share = 0.4;

ImportedModel read_model(const std::shared_ptr<const Blob>& bytes, const ExternalResolver& resolver, const OpSet& ops,
                         LoadProgress* progress) {
  if (progress) progress->stage(parse_share, 1);
  onnx::ModelProto model = parse({bytes->data(), static_cast<size_t>(bytes->size())});
  if (progress) progress->advance();
  if (progress) progress->stage(1, model.graph().node_size());
  ImportedModel out;
  out.ir_version = model.ir_version();
  out.producer = model.producer_name();
  if (!model.producer_version().empty()) out.producer += (out.producer.empty() ? "" : " ") + model.producer_version();
  for (const auto& entry : model.metadata_props()) out.metadata[entry.key()] = entry.value();
  out.opsets = read_opsets(model);
  if (out.ir_version > newest_ir)
    out.warnings.push_back(cat("the file is of IR version ", out.ir_version, ", newer than ", newest_ir,
                               ": what it adds is passed over"));
  if (out.opsets.count("") && out.opsets[""] > newest_opset)
    out.warnings.push_back(cat("the file uses opset ", out.opsets[""], ", newer than ", newest_opset,
                               ": ops are read as they were then"));
  TensorReader tensors(bytes, resolver);
  FunctionTable functions(model, out.opsets);
  DeviceReader devices(model);
  out.graph = GraphBuilder(ops, tensors, functions, devices, progress).main_graph(model.graph(), out.opsets);
  for (std::string& warning : devices.warnings()) out.warnings.push_back(std::move(warning));
  out.configurations = devices.take();
  return out;
}

}  // namespace

ImportedModel import_bytes(std::shared_ptr<const Blob> bytes, const ExternalResolver& resolver, const OpSet& ops,
                           LoadProgress* progress) {
  if (!bytes) throw Error(Code::invalid_argument, "no bytes to import");
  try {
    return read_model(bytes, resolver, ops, progress);
  } catch (const std::bad_alloc&) {
    throw Error(Code::out_of_memory, "out of memory while reading the model");
  } catch (const std::length_error&) {
    throw Error(Code::out_of_memory, "out of memory while reading the model");
  }
}

ImportedModel import_file(const std::string& path, const OpSet& ops, LoadProgress* progress) {
  auto resolver = [&path](const std::string& location) -> std::shared_ptr<const Blob> {
    return map_beside(path, location);
  };
  std::shared_ptr<const Blob> bytes = map_file(path);
  try {
    return import_bytes(std::move(bytes), resolver, ops, progress);
  } catch (const Error& error) {
    throw error.at(quote(path));
  }
}

}  // namespace plait

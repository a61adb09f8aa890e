// Whatever the bytes, the ONNX reader makes a graph that holds its invariants, or throws plait::Error.
#include "importers/onnx/import.h"
#include "tests/fuzz/fixture_files.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// Enough ops to reach every part of the reader.
plait::OpSet fuzz_ops() {
  plait::OpSet ops;
  auto add = [&](const char* name, const char* inputs, const char* outputs,
                 std::vector<plait::AttributeRow> attributes = {}) {
    plait::OpSchema row;
    row.name = name;
    row.inputs = inputs;
    row.outputs = outputs;
    row.attributes = std::move(attributes);
    ops.add(std::move(row));
  };
  for (const char* op : {"Add", "Identity", "Clip", "Slice", "Pad", "Squeeze", "Unsqueeze", "ReduceMean", "TopK",
                         "Reshape", "Shape", "Flatten", "Softmax", "CastLike", "ConstantOfShape", "Gemm"})
    add(op, "x?...", "y?...",
        {{"axis", "int", ""},
         {"allowzero", "int", ""},
         {"keepdims", "int", ""},
         {"value", "tensor", ""},
         {"mode", "string", ""},
         {"alpha", "float", ""},
         {"sizes", "ints", ""}});
  add("Split", "x split?", "y...", {{"num_outputs", "int", ""}});
  add("If", "cond captures?...", "y?...",
      {{"then_branch", "graph", "required"}, {"else_branch", "graph", "required"}});
  add("Loop", "trips? cond? v?...", "y?...", {{"body", "graph", "required"}, {"carried", "int", ""}});
  add("Scan", "x...", "y?...",
      {{"body", "graph", "required"}, {"num_scan_inputs", "int", "required"}, {"carried", "int", ""}});
  return ops;
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() { return fixture_files(); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const plait::OpSet ops = fuzz_ops();
  auto bytes = plait::copy_blob({reinterpret_cast<const std::byte*>(data), size});
  // External data of any name is the file itself.
  auto resolver = [&](const std::string&) -> std::shared_ptr<const plait::Blob> { return bytes; };
  try {
    plait::ImportedModel model = plait::import_bytes(bytes, resolver, ops);
    plait::verify(model.graph, "import");
    plait::text(model.graph);
  } catch (const plait::Error& error) {
    plait::fuzz::check_error(error);
  }
  return 0;
}

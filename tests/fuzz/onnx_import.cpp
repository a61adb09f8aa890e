// Whatever the bytes, the ONNX reader makes a graph that holds its invariants, or throws plait::Error.
#include "core/ops/ops.h"
#include "tests/fuzz/fixture_files.h"

std::vector<std::string> plait::fuzz::seeds() { return fixture_files(); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  static const OpSet ops = [] {
    OpSet all;
    register_ops(all);
    return all;
  }();
  try {
    ImportedModel model = fuzz::model_of(data, size, ops);
    verify(model.graph, "import");
    text(model.graph);
    ++fuzz::accepted;
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}

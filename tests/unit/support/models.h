#pragma once
// The fixture models, opened for tests.
#include <fstream>
#include <sstream>
#include <string>

#include "core/generate/engine.h"
#include "core/ops/ops.h"
#include "importers/onnx/import.h"
#include "tests/unit/support/default_kernels.h"
#include "tests/unit/support/isas.h"

namespace plait::test {

/// Ops and kernels, made once a process.
struct World {
  OpSet ops;
  KernelTable kernels;
  DeviceKind device = DeviceKind::host;  ///< of default_device()
  World() {
    register_ops(ops);
    register_kernels_under_test(kernels);
    device = add_default_kernels(kernels);
  }
  CompileOptions options(DType dtype = DType::none) const {
    CompileOptions out{ops, kernels};
    out.dtype = dtype;
    out.device = device;
    return out;
  }
  static const World& get() {
    static const World world;
    return world;
  }
};

inline std::string fixture(const std::string& name) {
  return std::string(PLAIT_FIXTURES "/") + name + "/model.onnx";
}

inline Graph fixture_graph(const std::string& name) { return import_file(fixture(name), World::get().ops).graph; }

/// Small pages, so that short tests cross many borders.
inline EngineOptions small_engine() {
  EngineOptions options;
  options.threads = 2;
  options.page_tokens = 16;
  options.step_tokens = 24;
  options.cache_bytes = 8 << 20;
  return options;
}

inline std::unique_ptr<Engine> fixture_engine(const std::string& name,
                                              const EngineOptions& options = small_engine()) {
  return make_engine(fixture_graph(name), World::get().options(), options);
}

}  // namespace plait::test

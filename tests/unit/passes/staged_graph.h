#pragma once
// Graphs of training that are cut into pipeline stages, as the passes leave them.
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/passes/train/compile_training.h"
#include "core/passes/stage/split.h"
#include "core/passes/train/train.h"
#include "tests/unit/support/models.h"

namespace plait::test {

/// So many stages on as many ranks.
inline StageOptions straight(int stages) {
  StageOptions out;
  for (int32_t i = 0; i < stages; ++i) out.seats.push_back({i});
  return out;
}

struct StagedOptions {
  StageOptions stages = {};
  TrainingOptions training = {};
};

struct Staged {
  std::map<std::string, Graph, std::less<>> after;  ///< by pass, its first run
  Graph whole;                                      ///< of a micro-batch, as `split` gets it
  TrainingModel model;                              ///< of pipeline rank 0

  std::vector<StageGraphs> split(bool whole_backward, bool halves) const {
    return plait::split(whole, World::get().ops,
                        {.stages = model.stages.count(),
                         .backward = backward_values(whole),
                         .whole = whole_backward,
                         .halves = halves});
  }
};

inline Staged staged(const Graph& graph, const StagedOptions& options) {
  CompileOptions compile = World::get().options();
  compile.stages = options.stages;
  Staged out;
  compile.dump = [&](std::string_view pass, const Graph& made) {
    out.after.emplace(pass, made);
    if (pass == "fuse_sums") out.whole = made;
  };
  if (options.stages.count() > 1) compile.mesh = Mesh::parse(cat("pipeline=", options.stages.count()));
  out.model = compile_training(graph, compile, options.training);
  return out;
}

inline Staged staged(const std::string& fixture, const StagedOptions& options) {
  return staged(fixture_graph(fixture), options);
}

}  // namespace plait::test

#pragma once
// The two engines behind make_engine.
#include "core/generate/engine.h"

namespace plait {

/// Null when the graph is not recognised, with the reason; on a mesh of several ranks that is Error(unsupported).
std::unique_ptr<Engine> make_ragged_engine(const Graph& graph, const CompileOptions& compile,
                                           const EngineOptions& options, LoadProgress* progress,
                                           std::shared_ptr<World> world, std::string& why_not);

/// Runs any graph with ids and logits as the file says. Throws Error(unsupported) when it has inputs of unknown role.
std::unique_ptr<Engine> make_plain_engine(const Graph& graph, const CompileOptions& compile,
                                          const EngineOptions& options, LoadProgress* progress);

}  // namespace plait

#pragma once
// The two engines that make_engine chooses from.
#include "core/generate/engine.h"

namespace plait {

/// Returns null and the reason if the graph is not recognised; on a mesh of several ranks throws Error(unsupported).
std::unique_ptr<Engine> make_ragged_engine(const Graph& graph, const CompileOptions& compile,
                                           const EngineOptions& options, LoadProgress* progress,
                                           std::shared_ptr<World> world, std::string& why_not);

/// Runs any graph with ids and logits unchanged, after `encoder` if there is one (make_engine). Throws Error(unsupported) for inputs of
/// unknown role.
std::unique_ptr<Engine> make_plain_engine(const Graph& graph, const CompileOptions& compile,
                                          const EngineOptions& options, LoadProgress* progress,
                                          const Graph* encoder = nullptr);

}  // namespace plait

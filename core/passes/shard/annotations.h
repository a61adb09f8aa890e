#pragma once
// Between a plan and the annotations of a file (core/graph/device_configuration.h): what these say of the user's tensors
// becomes seeds of the weights that raise made of them, and back. Devices are ranks: device i is rank i of the mesh, or, when
// there are as many as the axis tensor has places, all ranks of place i. Weights are cut along the axis tensor alone.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/device_configuration.h"
#include "core/passes/shard/shard.h"

namespace plait {

struct CompileOptions;

/// The configurations that may be for this mesh: those of its name (Mesh::text), then others with as many devices as there
/// are ranks, then such with as many as the axis tensor has places.
std::vector<const DeviceConfiguration*> configurations_for(const Mesh& mesh,
                                                           std::span<const DeviceConfiguration> configurations);

/// The mesh that a configuration is for: what its name says, if that is a mesh of as many ranks; else its devices are the
/// axis tensor.
Mesh mesh_of(const DeviceConfiguration& configuration);

/// Where the annotated tensors have the weights of `graph`, by the first configuration for the mesh that it can follow. What
/// says nothing that a sharding could follow (a slice that the annotated parts do not divide, say) is told in `notes`, and
/// has no seed. Throws Error(invalid_argument) when no configuration is for the mesh, and for a tensor whose parts and devices
/// are no blocks along the axis tensor.
ShardSeeds annotated_seeds(const Graph& graph, const Mesh& mesh, std::span<const DeviceConfiguration> configurations,
                           std::vector<std::string>& notes);

/// The seeds of a compilation: for the text "file", which has to be the only one, the file's annotations; without any text
/// those, too, where they fit the mesh and cut a weight; else what `seeds_of` says. Notes go to the log. Throws what these
/// throw, and Error(invalid_argument) for "file" when nothing is cut.
ShardSeeds seeds_for(const Graph& graph, const CompileOptions& options, bool training = false);

/// The plan's weights as annotations of the file's tensors; what is the same on all ranks has none. Called by the mesh's
/// name. `graph` is the one before pass shard. What has no annotation, though it is cut, is told in `notes`: what was
/// computed while compiling, a tensor that stands for two weights that are cut in different ways.
DeviceConfiguration configuration_of(const Graph& graph, const Mesh& mesh, const std::map<ValueId, Sharding>& weights,
                                     std::vector<std::string>& notes);

/// The same of what pass shard makes of a decoder that was raised.
DeviceConfiguration planned_configuration(const Graph& raised, const CompileOptions& options,
                                          std::vector<std::string>& notes);

}  // namespace plait

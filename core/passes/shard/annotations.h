#pragma once
// Converts between plans and a file's annotations (core/graph/device_configuration.h): annotations of tensors become
// seeds of raised weights, and back. Devices are ranks: device i is rank i of the mesh, or, with one device per place
// of the axis tensor, all ranks of place i. Weights are sharded only along the axis tensor.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/device_configuration.h"
#include "core/passes/base/stages.h"
#include "core/passes/shard/shard.h"

namespace plait {

struct CompileOptions;

/// The configurations that fit this mesh: those of its name (Mesh::text), then others with one device per rank, then
/// those with one device per place of the axis tensor.
std::vector<const DeviceConfiguration*> configurations_for(const Mesh& mesh,
                                                           std::span<const DeviceConfiguration> configurations);

/// The mesh of a configuration: from its name, if that is a mesh of as many ranks; otherwise its devices are the axis
/// tensor.
Mesh mesh_of(const DeviceConfiguration& configuration);

/// Shardings of the weights of `graph` from annotated tensors, by the first configuration for the mesh that can be
/// followed. Annotations without an equivalent sharding (e.g. of a slice that the annotated parts do not divide) are
/// listed in `notes`, and give no seed. Of a pipeline only the ranks count that hold some part of a tensor. Throws
/// Error(invalid_argument) if no configuration fits the mesh, and for a tensor whose parts and devices are not blocks
/// along the axis tensor.
ShardSeeds annotated_seeds(const Graph& graph, const Mesh& mesh, std::span<const DeviceConfiguration> configurations,
                           std::vector<std::string>& notes);

/// The seeds of a compilation: for the only text "file", the file's annotations; without texts those too, if they fit
/// the mesh and shard a weight; otherwise `seeds_of`. Logs the notes. Throws the errors of these, and
/// Error(invalid_argument) for "file" if nothing is sharded.
ShardSeeds seeds_for(const Graph& graph, const CompileOptions& options, bool training = false);

/// The plan's weights as annotations of the file's tensors, named after the mesh; tensors that all ranks have whole have none.
/// `graph` is the one before pass shard. Of a pipeline its nodes have stages, and the ranks of a stage hold the
/// tensors that they read. Sharded weights that cannot be annotated are listed in `notes`: computed constants, a tensor of two
/// weights that are sharded differently.
DeviceConfiguration configuration_of(const Graph& graph, const Mesh& mesh, const std::map<ValueId, Sharding>& weights,
                                     std::vector<std::string>& notes, const StageOptions& stages = {});

}  // namespace plait

#pragma once
// What checkpoints hold about their run: its options, and what it trained.
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/train/trainer_options.h"

namespace plait {

/// State of a checkpoint: the options that must not change for a run to resume, and the names of the file's tensors that it
/// trains.
std::map<std::string, std::string> run_state(const TrainerOptions& options, const std::vector<std::string>& trained);
/// Throws Error(invalid_argument), naming the option, if the run had others.
void check_run_state(const std::map<std::string, std::string>& state, const TrainerOptions& options);
/// Throws Error(bad_model) if the checkpoint lacks it.
std::string state_of(const CheckpointInfo& info, const std::string& name);

/// Fingerprint of the file's tensors; values of the `trained` ones are excluded, so a checkpoint fits its model
/// before and after training.
std::string fingerprint(const Graph& graph, const std::vector<std::string>& trained);
/// The fingerprint that a checkpoint must have to fit this model.
std::string fingerprint(const Graph& graph, const CheckpointInfo& info);
/// What the checkpoint's run trained: weights or adapters. Throws Error(bad_model).
TrainingOptions trained_by(const CheckpointInfo& info);

}  // namespace plait

#pragma once
// Costs of pipeline stages of any number of layers, from programs compiled as for a run.
//
// Layers of a decoder that is known by its sizes repeat: five of them are cut into four stages, the embedding and a layer, one layer,
// two layers, a layer and the head. The difference of the two in the middle is a layer's cost, and what remains of each stage is that
// of its ends. A model at hand, or two periods of one whose layers have several kinds in turn, is cut into its embedding, each layer,
// and its head; what the first two layers cost less in one stage is computed once a stage, such as angles of positions. So a stage
// costs its ends and its layers, in each of the terms of StageCosts but the arena, which is the largest section's.
#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/mesh/mesh.h"
#include "core/passes/base/training.h"
#include "core/plan/price/program_price.h"
#include "core/plan/shape/planned_decoder.h"
#include "core/schedule/schedule.h"

namespace plait {

struct TrainingModel;

/// What one section costs, for one micro-batch on one rank.
struct SectionCosts {
  double seconds = 0;
  double exposed_s = 0;  ///< of these, waiting for collectives
  double flops = 0;
};

/// Of one stage, on one rank. Bytes are as the rank holds them.
struct StageCosts {
  std::array<SectionCosts, 4> sections = {};     ///< by Action::Kind: forward, backward, input and weight gradient
  std::array<double, 4> slots = {};              ///< bytes of a set, by SlotPool
  double arena = 0;                              ///< of the largest section
  double forward_bytes = 0, backward_bytes = 0;  ///< of a message to the next stage and to the one before
  double weights = 0, gradients = 0, optimizer = 0;
  double trained_weights = 0;  ///< of the weights
  double parameters = 0;       ///< trained elements, over all ranks that share the stage
  double finish_s = 0;         ///< norm and update without their collectives
  double reduce_s = 0;         ///< those collectives

  const SectionCosts& of(Action::Kind kind) const { return sections[static_cast<size_t>(kind)]; }
  /// All but the arena and messages.
  StageCosts& add(const StageCosts& other, double times);
};

struct StageTable {
  std::vector<StageCosts> layers;  ///< of each layer; of fewer than there are: these in turn
  StageCosts first, middle,
      last;         ///< without layers: what comes before them, an inner stage, what follows them
  StageCosts tied;  ///< of weights that both `first` and `last` have: bytes and the end of a step

  const StageCosts& layer(int64_t number) const { return layers[static_cast<size_t>(number) % layers.size()]; }
  /// Of a stage of so many layers, from layer `begin` on.
  StageCosts stage(int64_t begin, int64_t count, bool is_first, bool is_last) const;
};

/// What decides the programs.
struct ProbeTerms {
  int64_t tensor = 1;
  int64_t data = 1;  ///< two stand for any number of several, unless `seeds` name the axis
  int zero = 0;
  Recompute recompute = Recompute::off;
  bool split = false;                   ///< with sections I and W, too
  std::vector<std::string> seeds = {};  ///< as CompileOptions; empty: the decoder's
  auto operator<=>(const ProbeTerms&) const = default;
};

/// What decides what they cost.
struct StageTerms {
  int64_t data = 1;
  int64_t micro_batch = 0;    ///< tokens of a data rank
  bool cut_messages = false;  ///< what all tensor ranks have alike crosses in parts and is gathered by the receiver
};

/// The probe's programs. Those of two data ranks are priced as of any number of them: collectives along data are as many. Nothing is
/// loaded.
class StageProbe {
 public:
  /// `training`: row_tokens, zero and recompute are those of the other arguments. Throws what compile_training throws.
  StageProbe(const PlannedDecoder& decoder, const TrainingOptions& training, const ProbeTerms& terms);
  ~StageProbe();

  /// Throws what price_of throws. Thread-safe.
  StageTable price(const StageTerms& terms, const PriceTerms& price) const;

 private:
  const ProbeTerms terms_;
  const OptimizerKind optimizer_;
  const bool each_layer_;  ///< is a stage; otherwise layers are alike
  const int64_t kinds_;    ///< of layers, if each is a stage
  std::unique_ptr<const TrainingModel> model_;
  std::unique_ptr<const TrainingModel> pair_;  ///< if each layer is a stage: with the first two in one
};

}  // namespace plait

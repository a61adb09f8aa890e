#pragma once
// Costs of pipeline stages of any number of layers, from programs of a few layers.
//
// Layers repeat. A decoder of five layers is cut into four stages: the embedding and a layer, one layer, two layers, a layer and the
// head. Its sections are compiled as for a run; the difference of the two in the middle is a layer's cost, and what remains of each
// stage is that of its ends. So a stage of n layers costs ends + n layer, in each of the terms of StageCosts.
#include <array>
#include <compare>
#include <cstdint>
#include <memory>

#include "core/mesh/mesh.h"
#include "core/passes/base/training.h"
#include "core/plan/price/program_price.h"
#include "core/plan/shape/decoder_shape.h"
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
  double parameters = 0;  ///< trained elements, over all ranks that share the stage
  double finish_s = 0;    ///< norm and update without their collectives
  double reduce_s = 0;    ///< those collectives

  const SectionCosts& of(Action::Kind kind) const { return sections[static_cast<size_t>(kind)]; }
  StageCosts& add(const StageCosts& other, double times);
};

struct StageTable {
  StageCosts layer, first, middle,
      last;  ///< without layers: what comes before them, an inner stage, what follows them

  /// Of a stage of so many layers.
  StageCosts stage(int64_t layers, bool is_first, bool is_last) const;
};

/// What decides the programs.
struct ProbeTerms {
  int64_t tensor = 1;
  bool several_data_ranks = false;
  int zero = 0;
  Recompute recompute = Recompute::off;
  OptimizerKind optimizer = OptimizerKind::adamw;
  bool split = false;  ///< with sections I and W, too
  auto operator<=>(const ProbeTerms&) const = default;
};

/// What decides what they cost.
struct StageTerms {
  int64_t data = 1;
  int64_t micro_batch = 0;    ///< tokens of a data rank
  bool cut_messages = false;  ///< what all tensor ranks have alike crosses in parts and is gathered by the receiver
};

/// The probe's programs, of one or two data ranks: collectives along data are as many for any number of them. Nothing is loaded.
class StageProbe {
 public:
  /// Throws what compile_training throws.
  StageProbe(const DecoderShape& shape, const ProbeTerms& terms, const OpSet& ops, const KernelTable& kernels);
  ~StageProbe();

  /// Throws what price_of throws. Thread-safe.
  StageTable price(const StageTerms& terms, const PriceTerms& price) const;

 private:
  const ProbeTerms terms_;
  std::unique_ptr<const TrainingModel> model_;
};

}  // namespace plait

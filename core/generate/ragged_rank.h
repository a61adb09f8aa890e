#pragma once
// One rank of a ragged decoder: its programs and its shards of weights and pages, of all layers or of those of its pipeline
// stage. The engine on rank 0 calls its own directly and the others through commands (engine_commands.h).
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/bytes.h"
#include "core/comm/world.h"
#include "core/generate/device_needs.h"
#include "core/generate/engine.h"
#include "core/generate/kv_cache.h"
#include "core/ranks/program_groups.h"
#include "core/ranks/stage_sections.h"

namespace plait {

/// Inputs of one replica's step (Decoder in core/passes/base/decoder.h), and the page copies before it.
struct RaggedStep {
  bool hidden = false;  ///< runs the program without the LM head
  bool logits = false;  ///< some feed takes them
  std::vector<KvCache::Copy> copies;
  std::vector<int64_t> ids;
  std::vector<int32_t> positions, segments, rows, lengths, states, adapters;
  std::vector<std::vector<int32_t>> slots, tables;  ///< by page group
  std::vector<int64_t> settings;                    ///< of choices, if the decoder has them
  std::vector<int32_t> edits;
  std::vector<float> given;  ///< rows that stand for tokens, if the decoder takes any: at least one
  std::vector<int32_t> given_at;
  std::vector<int32_t> mrope_positions;  ///< [tokens, 3], if the decoder takes places
  int64_t segment_count = 0, table_width = 1, chosen = 0;

  bool empty() const { return ids.empty(); }
  /// Whether a row's token is chosen.
  bool chooses() const { return chosen > 0; }
  auto fields() {
    return std::tie(hidden, logits, copies, ids, positions, segments, rows, lengths, states, adapters, slots, tables,
                    settings, edits, given, given_at, mrope_positions, segment_count, table_width, chosen);
  }
};

/// Appends what a feed's last row asks for, after the feed's `rows`; `chooses`: of the decoder.
void add_choice(RaggedStep& step, const Feed& feed, bool chooses);
/// Pads the edits with those of no row to a power of two, so that a request whose output grows has the sizes of captured runs.
void pad_choices(RaggedStep& step);

/// Row `row` of a Store array: a page of one layer, a slot of one state or of one adapter matrix.
struct StoreRow {
  std::string key;  ///< in the Store
  int32_t row = 0;
  int32_t stage = 0;  ///< the pipeline stage that computes it; others may have rows of that key, too

  auto fields() { return std::tie(key, row, stage); }
};

/// One thread at a time.
class RaggedRank {
 public:
  /// `weights` may be null or shared with other ranks of the process; `device` as a Store takes it. `options.threads` is this
  /// rank's.
  RaggedRank(RaggedModel model, const EngineOptions& options, std::shared_ptr<MemoryBudget> budget,
             std::shared_ptr<Store> weights, std::shared_ptr<Device> device);

  // In this order:
  /// Creates the communicators; all ranks of the world call it together. Null: there is no other rank.
  void join(World* world);
  /// What it takes of its device.
  RankNeeds needs();
  /// Makes the Store's arrays, and what runs steps.
  void load(const CacheCapacity& capacity, LoadProgress* progress);

  /// Whether steps communicate with other ranks.
  bool needs_others() const { return in_stages() || !model_.program->groups.empty(); }
  bool in_stages() const { return model_.stages.count() > 1; }
  int32_t stage() const { return model_.section.stage; }

  /// Runs a step, of a pipeline the stage: takes what earlier stages give, and gives without waiting for later ones. Its outputs
  /// are valid until the next run.
  void run(const RaggedStep& step);
  /// Outputs of the last run, f32 [r, v] and [r, h], and tokens i32 [r]; null if it has none, as on all stages but the last. On a
  /// device each is a copy.
  const float* logits() const;
  const float* hidden() const;
  const int32_t* tokens() const;

  void copy_pages(const std::vector<KvCache::Copy>& copies);
  /// Type and shape of a rank's part of a row, of any stage.
  const RaggedModel::Row& row_type(const StoreRow& row) const;
  int64_t part_bytes(const StoreRow& row) const;
  /// This rank's part of a row that it has, on its device, in the array's shape without the first dim.
  TensorView row(const StoreRow& row) const;
  /// The same in host memory, valid until the next step.
  Tensor read(const StoreRow& row) const;
  /// The position of a rank's part within a row.
  struct Place {
    Shape whole, begin;
  };
  Place place(const StoreRow& row, int64_t rank) const;
  /// Reads the part of rank `rank`, this one, from a row's bytes; skips them if its stage has no such row.
  void write(const StoreRow& row, ByteReader& in, int64_t rank);

  const RaggedModel& model() const { return model_; }
  /// Idle while no step runs.
  ThreadPool& threads() { return pool_; }
  RankBytes bytes() const;
  /// ProgramGroups::transport.
  std::string transport() const { return groups_.transport(); }
  /// Bytes of weights shared by ranks of this process; 0 if none.
  int64_t shared_weight_bytes() const { return weights_ ? weights_->bytes() : 0; }
  void set_profiling(bool on) { step_.executor->set_profiling(on); }
  Profile profile() const { return step_.executor->profile(); }
  void set_tracing(bool on);
  const std::vector<TraceEvent>& trace() const { return trace_; }

 private:
  /// A program and what runs it: of a pipeline's stage a section with its messages.
  struct Part {
    std::unique_ptr<Executor> owned;
    std::vector<StageSection> described;  ///< the one of `section`, which refers to it
    std::unique_ptr<StageSections> section;
    Executor* executor = nullptr;  ///< null until made
  };

  void touch_first_pages();
  void make(Part& part, const std::shared_ptr<const Program>& program);
  void run_stage(const RaggedStep& step, Part& part);
  int64_t given_size() const { return model_.decoder.interface.given_size; }
  bool has_results() const { return stage() + 1 == model_.stages.count(); }

  RaggedModel model_;
  const EngineOptions options_;
  ThreadPool pool_;
  const std::shared_ptr<Store> weights_;
  Store store_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::vector<int64_t> sizes_;  ///< of arrays, by the program's symbols
  ProgramGroups groups_;
  Part step_, hidden_;
  std::unique_ptr<ActionRunner> runner_;  ///< of a pipeline's stage
  Schedule schedule_;                     ///< of one step
  const Executor* last_ = nullptr;        ///< executor of the last step; null before the first
  bool last_hidden_ = false;              ///< the last step ran without the head
  bool tracing_ = false;
  std::vector<TraceEvent> trace_;
};

}  // namespace plait

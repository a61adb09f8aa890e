#pragma once
// The engine: one step takes tokens of several sequences and returns logits. The caller chooses the mix of prefill,
// decode, prefill chunks and verification.
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/token_weight.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/generate/encoder.h"
#include "core/generate/given_rows.h"
#include "core/passes/compile.h"

namespace plait {

class ThreadPool;

/// A loaded adapter. Reference-counted by those who compute with it; its slot or prefix pages are free once the last
/// reference is gone.
struct Adapter {
  std::string name;
  int32_t slot = -1;      ///< low-rank adapters; otherwise -1
  int64_t prefix = 0;     ///< prefix tokens, whose keys and values precede each sequence
  uint64_t number = 0;    ///< unique per adapter: sequences of different adapters share nothing
  uint64_t contents = 0;  ///< checksum, which identifies it in saved sequences
};

/// A sequence of tokens with cached keys, values and states. The destructor frees its memory. Belongs to one engine,
/// must not outlive it, and is used by the engine's thread only.
class Sequence {
 public:
  virtual ~Sequence() = default;
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  /// The adapter of its tokens; null if none.
  const std::shared_ptr<const Adapter>& adapter() const { return adapter_; }
  /// Prefix tokens before its own in the cache; token positions count from here.
  int64_t prefix() const { return adapter_ ? adapter_->prefix : 0; }
  /// The sum of its tokens' advances (GivenPlace), after the prefix: positions of the next token are that plus its offsets. `given`: rows
  /// of its tokens whose ids are negative.
  int64_t next_position(GivenList given) const;

 protected:
  std::vector<int32_t> tokens_;
  std::shared_ptr<const Adapter> adapter_;

 private:
  mutable size_t counted_ = 0;  ///< tokens whose advances are in `advanced_`
  mutable int64_t advanced_ = 0;
};

/// How a step chooses the token after a feed's last row. What it refers to outlives the step.
struct TokenChoice {
  ChoiceSettings settings;
  std::vector<LogitEdit> edits;
};

/// What one sequence adds to a step.
struct Feed {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;  ///< appended to the sequence; at least one
  int64_t rows = 1;                 ///< computes logits of the last `rows` tokens; 0: none
  /// Set by `step` or `finish`: [rows, vocabulary]; of a step without the head: [rows, hidden]. Valid until the next step, or the
  /// next `finish`.
  std::span<float> logits;
  std::span<const float> hidden;
  /// If the engine `chooses`: `step` sets `chosen` and leaves `logits` empty. One row of logits.
  const TokenChoice* choice = nullptr;
  int32_t chosen = not_chosen;  ///< the token's id, or a ChoiceFault
  GivenList given = {};         ///< rows of the sequence's and the feed's tokens whose ids are negative
};

struct EngineOptions {
  int threads = 0;  ///< 0: one per usable processor
  /// Hard limit of the KV cache, including recurrent states; 0: on devices with memory of their own what `device_share` leaves, or what
  /// `step_sequences` of the longest length use if that is less; elsewhere `usual_cache_bytes`.
  int64_t cache_bytes = usual_cache_bytes;
  static constexpr int64_t usual_cache_bytes = int64_t{512} << 20;
  /// Of a device's memory that is free before loading, the share that weights, workspace and a cache without a given size take at most.
  /// The rest is for what comes later: graphs, programs for hidden states, and other users of the device.
  double device_share = 0.9;
  int64_t page_tokens = 32;
  int64_t step_tokens = 1024;  ///< max tokens per step
  int64_t step_sequences = 64;
  int64_t step_rows = 64;       ///< max rows of logits per step
  int64_t context = 0;          ///< max sequence length; 0: the limit of the graph's tables
  int64_t encoder_context = 0;  ///< max ids of an encoder's text; 0: no limit
  int64_t memory_bytes = 0;     ///< max memory of a step without weights and cache; 0: see MemoryBudget
  // On a mesh `threads` is per rank; budgets are totals over all ranks, limits of steps and rows totals over all
  // replicas.
  double rank_timeout_s = 60;  ///< ranks as threads: timeout of waiting for each other in a step
  /// For tests: if set, called on each rank before each step, with the number of earlier steps.
  std::function<void(int64_t rank, int64_t step)> before_step = {};
};

/// Memory of one rank, in bytes.
struct RankBytes {
  int64_t weights = 0, cache = 0, arena = 0, adapters = 0;
};

struct EngineStats {
  int64_t pages = 0, pages_free = 0;                           ///< of all pools
  int64_t pages_shared = 0;                                    ///< in use by more than one sequence
  int64_t states = 0, states_free = 0;                         ///< state slots for use between steps
  int64_t weight_bytes = 0, cache_bytes = 0, arena_bytes = 0;  ///< adapter slots count as weights
  int64_t prefix_hits = 0;                                     ///< tokens found in the cache instead of computed
  /// By rank; memory shared by ranks of one process counts here for each, above once.
  std::vector<RankBytes> ranks;
  int failed_rank = -1;   ///< the rank that ended the world of all: every step fails since; -1: none
  std::string transport;  ///< of rank 0's groups of devices (core/comm/transport.h); empty without
};

/// Not thread-safe except `budget`: one thread drives an engine.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Opens a sequence that already holds the longest cached prefix of `tokens` (never all: at least one token is left
  /// to feed). `prompt`: its first tokens that count as one prompt, however they are chunked, since a graph may
  /// select its computation by prompt length; 0: all of `tokens`, or if empty, the first feed. All tokens use
  /// `adapter`; only sequences of the same adapter share a prefix. `input`: of the encoder, which the sequence and its
  /// copies attend to; the first step runs it.
  virtual std::unique_ptr<Sequence> open(std::span<const int32_t> tokens, int64_t prompt = 0,
                                         std::shared_ptr<const Adapter> adapter = nullptr,
                                         std::shared_ptr<const EncoderInput> input = nullptr) = 0;
  /// What makes and checks inputs of `open`, from any thread; null: the model has no encoder.
  virtual const Encoder* encoder() const { return nullptr; }
  /// Whether a prompt of `prompt` tokens, including the sequence's own, may extend it; false if the graph computes
  /// prompts of that length differently.
  virtual bool continues(const Sequence&, int64_t /*prompt*/) const { return true; }
  /// A copy of the sequence. Full pages are shared; a partly filled one is copied on write.
  virtual std::unique_ptr<Sequence> fork(const Sequence& sequence) = 0;
  /// Reserves memory for `tokens` more; false if the budget does not currently hold them.
  virtual bool reserve(Sequence& sequence, int64_t tokens) = 0;
  /// Whether memory freed by one sequence is usable by the other.
  virtual bool shares_cache(const Sequence&, const Sequence&) const { return true; }
  /// Whether a sequence of that length, including its adapter's prefix, and what the encoder makes of `input` fit an empty cache.
  virtual bool could_fit(int64_t length, const EncoderInput* input = nullptr) const = 0;
  /// No later sequence finds cached pages of an earlier one.
  virtual void forget_pages() {}
  /// Runs one step; memory must have been reserved. On an Error (NaN, a token out of range, Error(cancelled) by
  /// `budget`) all sequences are unchanged.
  virtual void step(std::span<Feed> feeds) = 0;
  /// Whether `step` takes choices of so many edits in all.
  virtual bool chooses(int64_t /*edits*/) const { return false; }
  /// Runs a step without the LM head: sets Feed::hidden only. Throws Error(unsupported) if the graph has no hidden
  /// state.
  virtual void step_hidden(std::span<Feed> feeds) = 0;

  // Steps in flight: with pipeline stages several steps, each of other sequences, run at once, one on each stage.
  /// So many steps fill the pipeline; `begin` takes no more.
  virtual int64_t steps_in_flight() const { return 1; }
  /// As `step` or, if `hidden`, `step_hidden`, whose results `finish` sets. `feeds` and their sequences stay as they are until
  /// then; other sequences may be used. On an Error the step has not begun.
  virtual void begin(std::span<Feed> feeds, bool hidden) { hidden ? step_hidden(feeds) : step(feeds); }
  /// Ends the step that began first. On an Error its sequences are unchanged.
  virtual void finish() {}

  /// Loads an adapter into a slot reserved at construction (CompileOptions::adapters), or a prefix into shared cache
  /// pages. Throws as AdapterSlots::take; Error(out_of_memory) when the cache cannot hold the prefix;
  /// Error(unsupported) where the graph is not recognised.
  virtual std::shared_ptr<const Adapter> add_adapter(const std::string& name, const AdapterWeights& weights) = 0;

  /// Serialises the tokens with their keys, values and states, for `restore` on an engine of the same model and
  /// dtype.
  /// `saved`: the rows of its tokens whose ids are negative. `restore` throws Error(bad_model) on invalid bytes, Error(not_found) if the
  /// adapter is not loaded.
  virtual std::vector<std::byte> save(const Sequence& sequence) const = 0;
  virtual std::unique_ptr<Sequence> restore(std::span<const std::byte> bytes,
                                            std::span<const SavedRows> saved = {}) = 0;

  /// The memory budget of steps. `cancel`, from any thread, ends the current step and later ones until the next
  /// `begin`.
  MemoryBudget& budget() const { return *budget_; }

  /// The threads of its steps, for the thread that drives it and between steps; null: none.
  virtual ThreadPool* threads() { return nullptr; }

  virtual EngineStats stats() const = 0;
  virtual const Decoder& decoder() const = 0;
  /// Of the ranks in stats().
  virtual Mesh mesh() const { return {}; }
  virtual void set_profiling(bool on) = 0;
  virtual Profile profile() const = 0;
  /// Trace of each rank since tracing began. Clocks of several machines are not synchronised.
  virtual void set_tracing(bool on) = 0;
  virtual std::vector<std::vector<TraceEvent>> trace() = 0;

  int64_t vocabulary() const { return vocabulary_; }
  int64_t context() const { return context_; }  ///< 0: limited by the budget only
  const EngineOptions& options() const { return options_; }

 protected:
  explicit Engine(const EngineOptions& options, std::shared_ptr<MemoryBudget> budget = nullptr)
      : options_(options),
        budget_(budget ? std::move(budget) : std::make_shared<MemoryBudget>(options.memory_bytes)) {
    if (!options_.cache_bytes) options_.cache_bytes = EngineOptions::usual_cache_bytes;
  }

  EngineOptions options_;
  const std::shared_ptr<MemoryBudget> budget_;  ///< shared by all its executors
  std::atomic<int64_t> vocabulary_{0};          ///< of some graphs known after the first run only
  int64_t context_ = 0;
};

/// Makes a ragged (continuous batching) engine if the graph is recognised, otherwise one that runs the graph as is,
/// one sequence at a time. Reads no file. Compiling and loading report to `progress`, up to its end; their errors are
/// thrown.
/// On a mesh (CompileOptions::mesh) the ranks are threads of the engine, or the processes of `world`: this is rank 0,
/// the others call `serve_engine` (serve_engine.h). A graph that is not recognised is then Error(unsupported).
/// `encoder`: of a decoder whose interface has `encoded` inputs, which are its outputs in order. Such a decoder runs as written; one with a
/// past token by token, since its file was traced with one. Error(not_found) if it has none.
std::unique_ptr<Engine> make_engine(const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
                                    LoadProgress* progress = nullptr, std::shared_ptr<World> world = nullptr,
                                    const Graph* encoder = nullptr);

}  // namespace plait

#pragma once
// The step: tokens of several sequences go in, logits come out. Whoever fills the step decides what it is: prefill,
// decode, a chunk, verification, or any mix.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"

namespace plait {

/// An adapter that an engine has room for. Whoever computes with it holds it; when nobody does any more its slot, or the pages
/// that hold its prefix, are free.
struct Adapter {
  std::string name;
  int32_t slot = -1;      ///< of one that stands beside Linears
  int64_t prefix = 0;     ///< tokens whose keys and values stand before the first of each sequence
  uint64_t number = 0;    ///< of all that were added: sequences of unequal adapters have nothing in common
  uint64_t contents = 0;  ///< a checksum, by which saved sequences know theirs
};

/// Tokens of which the cache holds keys, values and states, in order. Destroying it gives its memory back. Belongs to one
/// engine, must not outlive it, and is used by its thread alone.
class Sequence {
 public:
  virtual ~Sequence() = default;
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  /// What its tokens are computed with; null: none.
  const std::shared_ptr<const Adapter>& adapter() const { return adapter_; }
  /// What stands before its tokens in the cache: they are counted from here.
  int64_t prefix() const { return adapter_ ? adapter_->prefix : 0; }

 protected:
  std::vector<int32_t> tokens_;
  std::shared_ptr<const Adapter> adapter_;
};

/// What one sequence adds to a step.
struct Feed {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;  ///< appended to the sequence; at least one
  int64_t rows = 1;                 ///< logits are wanted for the last `rows` of them; 0: none
  /// Filled by the step, [rows, vocabulary] and [rows, hidden], valid until the next step. `hidden` is empty where the
  /// graph does not show it.
  std::span<float> logits;
  std::span<const float> hidden;
};

struct EngineOptions {
  int threads = 0;                           ///< 0: as many as usable processors
  int64_t cache_bytes = int64_t{512} << 20;  ///< the hard budget of the KV cache, states of recurrent layers included
  int64_t page_tokens = 32;
  int64_t step_tokens = 512;  ///< most tokens of one step
  int64_t step_sequences = 64;
  int64_t step_rows = 64;    ///< most rows of logits of one step
  int64_t context = 0;       ///< longest sequence; 0: what the graph's tables allow
  int64_t memory_bytes = 0;  ///< most that a step may take beside weights and cache; 0: see MemoryBudget
  // On a mesh `threads` counts those of each rank; budgets are those of all ranks together, and limits of steps and rows
  // those of all replicas.
  double rank_timeout_s = 60;  ///< how long ranks that are threads wait for each other in a step
  /// For tests: called, if set, on each rank before it computes a step, with the number of steps before it.
  std::function<void(int64_t rank, int64_t step)> before_step = {};
};

/// What one rank holds.
struct RankBytes {
  int64_t weights = 0, cache = 0, arena = 0, adapters = 0;
};

struct EngineStats {
  int64_t pages = 0, pages_free = 0;                           ///< of all pools
  int64_t pages_shared = 0;                                    ///< in use by more than one sequence
  int64_t states = 0, states_free = 0;                         ///< slots that sequences may hold between steps
  int64_t weight_bytes = 0, cache_bytes = 0, arena_bytes = 0;  ///< slots of adapters count among weights
  int64_t prefix_hits = 0;  ///< tokens that were found in the cache instead of computed
  /// Of each rank; ranks of one process share what several of them hold, which counts here for each, and above once.
  std::vector<RankBytes> ranks;
};

/// Not thread-safe, but for `room`: one thread drives an engine.
class Engine {
 public:
  virtual ~Engine() = default;

  /// An empty sequence that already holds as long a prefix of `tokens` as the cache has (never all of it: one token at
  /// least is left to feed). The first `prompt` tokens that it is going to hold are one prompt, however they are fed: a
  /// graph may choose by the length of a prompt what all its tokens are computed with. 0: all of `tokens`, or if there are
  /// none, what is fed first. All are computed with `adapter`, and only sequences of the same one share a prefix.
  virtual std::unique_ptr<Sequence> open(std::span<const int32_t> tokens, int64_t prompt = 0,
                                         std::shared_ptr<const Adapter> adapter = nullptr) = 0;
  /// Whether tokens of a prompt that is `prompt` long with what the sequence holds may follow it; if not, the graph
  /// chooses for so many otherwise than it has chosen for the sequence.
  virtual bool continues(const Sequence&, int64_t /*prompt*/) const { return true; }
  /// A second sequence with the same past. Full pages are shared; a half-full one is copied when it is written to.
  virtual std::unique_ptr<Sequence> fork(const Sequence& sequence) = 0;
  /// Makes room for `tokens` more; false when the budget does not hold them now.
  virtual bool reserve(Sequence& sequence, int64_t tokens) = 0;
  /// Whether what one sequence gives back is room for the other.
  virtual bool shares_room(const Sequence&, const Sequence&) const { return true; }
  /// Whether a sequence of that length, its adapter's prefix included, could ever fit, alone.
  virtual bool could_fit(int64_t length) const = 0;
  /// Runs one step. Room must have been reserved. On an Error (NaN, a token out of range, Error(cancelled) by `room`) no
  /// sequence has changed.
  virtual void step(std::span<Feed> feeds) = 0;
  /// Hidden states alone, without the head: fills Feed::hidden only. Throws Error(unsupported) where there is none.
  virtual void step_hidden(std::span<Feed> feeds) = 0;

  /// Room was made for adapters when the engine was (CompileOptions::adapters); this fills a slot of it, or, of a prefix,
  /// pages of the cache, which sequences share. Throws what AdapterSlots::take does; Error(out_of_memory) when the cache has
  /// no room for a prefix; Error(unsupported) where the graph is not recognised.
  virtual std::shared_ptr<const Adapter> add_adapter(const std::string& name, const AdapterWeights& weights) = 0;

  /// The cached tokens with their keys, values and states, as bytes that `restore` of an engine of the same model and dtype
  /// reads back. Throws Error(bad_model) on bytes that are not, Error(not_found) when the adapter that they were computed with
  /// is not there.
  virtual std::vector<std::byte> save(const Sequence& sequence) const = 0;
  virtual std::unique_ptr<Sequence> restore(std::span<const std::byte> bytes) = 0;

  /// What steps take memory from. A `cancel` of it, by any thread, ends the step under way, and those to come until the
  /// next `begin`.
  MemoryBudget& room() const { return *room_; }

  virtual EngineStats stats() const = 0;
  virtual const Decoder& decoder() const = 0;
  virtual void set_profiling(bool on) = 0;
  virtual Profile profile() const = 0;
  /// What each rank does when, from when tracing began. On a mesh of several machines their clocks differ.
  virtual void set_tracing(bool on) = 0;
  virtual std::vector<std::vector<TraceEvent>> trace() = 0;

  int64_t vocabulary() const { return vocabulary_; }
  int64_t context() const { return context_; }  ///< 0: no limit but the budget
  const EngineOptions& options() const { return options_; }

 protected:
  explicit Engine(const EngineOptions& options, std::shared_ptr<MemoryBudget> room = nullptr)
      : options_(options), room_(room ? std::move(room) : std::make_shared<MemoryBudget>(options.memory_bytes)) {}

  EngineOptions options_;
  const std::shared_ptr<MemoryBudget> room_;  ///< of all its executors
  int64_t vocabulary_ = 0, context_ = 0;
};

/// Ragged when the graph is recognised, else op by op as the file says, one sequence at a time. Reads no file; compiling and
/// loading weights report to `progress`, up to its end. Throws what they throw.
/// On a mesh of several ranks (CompileOptions::mesh) they are threads of the engine, or the processes of `world`, which all
/// call `serve_engine` (ranks.h) and of which this is rank 0; a graph that is not recognised is then Error(unsupported).
std::unique_ptr<Engine> make_engine(const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
                                    LoadProgress* progress = nullptr, std::shared_ptr<World> world = nullptr);

}  // namespace plait

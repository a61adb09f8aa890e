#pragma once
// The engine of a recognised decoder: one ragged program, a paged cache, on one rank or several.
#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <set>

#include "core/generate/adapter_slots.h"
#include "core/generate/engine_commands.h"
#include "core/generate/engines.h"
#include "core/generate/serve_engine.h"
#include "core/ranks/rank_host.h"

namespace plait {

/// Sequences and cache allocation of one replica.
struct Replica {
  /// A prefix adapter, with the pages shared by all its sequences.
  struct Prefix {
    std::weak_ptr<const Adapter> adapter;
    std::unique_ptr<KvSequence> pages;
  };
  /// Null: the adapter has no prefix.
  const KvSequence* prefix_of(const std::shared_ptr<const Adapter>& adapter) const {
    for (const Prefix& one : prefixes)
      if (adapter && one.adapter.lock() == adapter) return one.pages.get();
    return nullptr;
  }
  /// Frees prefixes of adapters without references.
  void drop_prefixes() {
    std::erase_if(prefixes, [](const Prefix& one) { return one.adapter.expired(); });
  }

  Replica(const Decoder& decoder, const CacheCapacity& capacity, int64_t page_tokens, ReplicaPlace where)
      : cache(decoder, capacity, page_tokens), place(std::move(where)) {}

  KvCache cache;
  std::vector<Prefix> prefixes;
  ReplicaPlace place;
};

/// A step that has begun.
struct StepInFlight {
  std::span<Feed> feeds;
  ComputeStep step;
  std::vector<StepOutput> outputs;  ///< by replica, as reported; empty of one whose results rank 0 has
  std::exception_ptr failure;
  bool received = false;  ///< the reports
};

class RaggedEngine : public Engine {
 public:
  /// `host`: null for one rank.
  RaggedEngine(const EngineOptions& options, const CacheCapacity& capacity, std::unique_ptr<RaggedRank> rank,
               std::shared_ptr<MemoryBudget> budget, std::unique_ptr<RankHost> host, std::vector<RankBytes> others)
      : Engine(options, std::move(budget)),
        rank_(std::move(rank)),
        host_(std::move(host)),
        other_bytes_(std::move(others)),
        adapters_(decoder()) {
    const Decoder& found = decoder();
    const Mesh& mesh = rank_->model().mesh;
    vocabulary_ = found.vocabulary;
    context_ = found.context;
    if (options.context) context_ = context_ ? std::min(context_, options.context) : options.context;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      if (ReplicaPlace place = ReplicaPlace::of(mesh, rank); place.first(rank))
        replicas_.push_back(std::make_unique<Replica>(found, capacity, options.page_tokens, std::move(place)));
  }

  std::unique_ptr<Sequence> open(std::span<const int32_t> tokens, int64_t prompt,
                                 std::shared_ptr<const Adapter> adapter,
                                 std::shared_ptr<const EncoderInput>) override {
    // Picks the replica with the fewest sequences, to balance steps.
    auto least = std::min_element(replicas_.begin(), replicas_.end(), [](const auto& a, const auto& b) {
      return a->cache.sequences() < b->cache.sequences();
    });
    const KvSequence* prefix = (*least)->prefix_of(adapter);
    return (*least)->cache.open(tokens, prompt, std::move(adapter), prefix);
  }
  bool continues(const Sequence& sequence, int64_t prompt) const override {
    const KvCache& cache = kv(sequence).cache();
    return sequence.length() == 0 ||
           cache.exceeded(sequence.prefix() + kv(sequence).prompt()) == cache.exceeded(sequence.prefix() + prompt);
  }
  std::unique_ptr<Sequence> fork(const Sequence& sequence) override {
    return kv(sequence).cache().fork(kv(sequence));
  }
  bool reserve(Sequence& sequence, int64_t tokens) override {
    if (kv(sequence).cache().reserve(kv(sequence), tokens)) return true;
    replica_of(sequence).drop_prefixes();
    return kv(sequence).cache().reserve(kv(sequence), tokens);
  }
  bool could_fit(int64_t length, const EncoderInput*) const override { return replicas_[0]->cache.could_fit(length); }
  bool shares_cache(const Sequence& a, const Sequence& b) const override { return &kv(a).cache() == &kv(b).cache(); }

  void forget_pages() override {
    for (const auto& replica : replicas_) replica->cache.forget_pages();
  }

  Mesh mesh() const override { return rank_->model().mesh; }
  void step(std::span<Feed> feeds) override { run(feeds, false); }
  ThreadPool* threads() override { return &rank_->threads(); }
  int64_t steps_in_flight() const override { return rank_->model().stages.count(); }
  void begin(std::span<Feed> feeds, bool hidden) override;
  void finish() override;
  bool chooses(int64_t edits) const override { return decoder().chooses && edits <= RaggedBounds().edits; }

  void step_hidden(std::span<Feed> feeds) override { run(feeds, true); }

  std::shared_ptr<const Adapter> add_adapter(const std::string& name, const AdapterWeights& weights) override;
  std::vector<std::byte> save(const Sequence& sequence) const override;
  std::unique_ptr<Sequence> restore(std::span<const std::byte> bytes, std::span<const SavedRows> saved) override;

  EngineStats stats() const override {
    EngineStats out;
    for (const auto& replica : replicas_) {
      const KvCache& cache = replica->cache;
      out.pages += cache.pages();
      out.pages_free += cache.pages_free();
      out.pages_shared += cache.pages_shared();
      out.prefix_hits += cache.prefix_hits();
      out.states += cache.states();
      out.states_free += cache.states_free();
    }
    out.transport = rank_->transport();
    if (host_) out.failed_rank = host_->world().communicator().failed_rank();
    out.ranks = {rank_->bytes()};
    out.ranks.insert(out.ranks.end(), other_bytes_.begin(), other_bytes_.end());
    const int64_t shared = rank_->shared_weight_bytes();
    out.weight_bytes = shared;
    for (const RankBytes& one : out.ranks) {
      out.weight_bytes += one.adapters + (shared ? 0 : one.weights);
      out.cache_bytes += one.cache;
      out.arena_bytes += one.arena;
    }
    return out;
  }
  const Decoder& decoder() const override { return rank_->model().decoder; }
  void set_profiling(bool on) override { rank_->set_profiling(on); }
  Profile profile() const override { return rank_->profile(); }
  void set_tracing(bool on) override {
    rank_->set_tracing(on);
    broadcast(SetTracing{on});
  }
  std::vector<std::vector<TraceEvent>> trace() override {
    std::vector<std::vector<TraceEvent>> out{rank_->trace()};
    if (!host_) return out;
    receive_all();
    broadcast(TakeTrace{});
    for (const Report& report : host_->gather(host_->others(), RankHost::Patience::endless)) {
      std::vector<TraceEvent>& events = out.emplace_back();
      for (const TracedEvent& one : report.as<std::vector<TracedEvent>>())
        events.push_back(
            {*trace_names_.insert(one.name).first, one.begin, one.end, one.waited, one.collective, one.async});
    }
    return out;
  }

 private:
  static KvSequence& kv(Sequence& sequence) { return static_cast<KvSequence&>(sequence); }
  static const KvSequence& kv(const Sequence& sequence) { return static_cast<const KvSequence&>(sequence); }
  /// Broadcasts a command; no effect with one rank.
  template <class Command>
  void broadcast(const Command& command) const {
    if (host_) host_->broadcast(EngineCommands::encode(command));
  }
  Replica& replica_of(const Sequence& sequence) const {
    return **std::find_if(replicas_.begin(), replicas_.end(),
                          [&](const auto& one) { return &one->cache == &kv(sequence).cache(); });
  }
  static RaggedStep& step_of(ComputeStep& step, const Replica& replica) {
    return step.replicas[static_cast<size_t>(replica.place.replica)];
  }

  void run(std::span<Feed> feeds, bool hidden) {
    PLAIT_ASSERT(in_flight_.empty());
    begin(feeds, hidden);
    finish();
  }
  void check(std::span<const Feed> feeds, bool hidden) const;
  void check_places(const Feed& feed) const;
  void fill(std::span<Feed> feeds, bool hidden, ComputeStep& out);
  void feed(const Feed& feed, RaggedStep& step) const;
  void pad(RaggedStep& step) const;
  void receive(StepInFlight& flight) const;
  /// So that the next report of each rank is that of the next command.
  void receive_all() const;
  void distribute(StepInFlight& flight);
  void abandon(StepInFlight& flight);

  /// By window, whether each page of a sequence's tokens exists; those below the window were freed.
  using Presence = std::map<int64_t, std::vector<uint8_t>>;
  std::vector<int64_t> windows() const;  ///< of all page groups, ascending
  /// The cache rows of a sequence: its pages, then its states in slot `state`. Pages that hold only the prefix belong
  /// to the adapter.
  std::vector<StoreRow> rows_of(const KvSequence& sequence, const Presence& present, int32_t state) const;
  int32_t stage_of(int64_t rank) const {
    const Mesh& mesh = rank_->model().mesh;
    return static_cast<int32_t>(mesh.block(rank, mesh.parts("pipeline")));
  }
  std::vector<std::byte> read_rows(Replica& replica, const std::vector<StoreRow>& rows) const;
  void write_rows(Replica& replica, const std::vector<StoreRow>& rows, std::span<const std::byte> bytes);
  void write_low_rank(const Adapter& adapter, const AdapterWeights& weights);
  void write_prefix(const std::shared_ptr<const Adapter>& adapter, const AdapterWeights& weights);
  static ReplicaRows rows_on(Replica& replica, const std::vector<StoreRow>& rows) {
    return {replica.place.replica, std::exchange(replica.cache.copies, {}), rows};
  }
  int64_t row_bytes(const StoreRow& row) const {
    return packed_bytes(rank_->place(row, 0).whole.elements(), dtype_bits(rank_->row_type(row).dtype));
  }

  std::unique_ptr<RaggedRank> rank_;
  std::unique_ptr<RankHost> host_;  ///< controls the other ranks
  std::vector<RankBytes> other_bytes_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  AdapterSlots adapters_;
  mutable std::deque<StepInFlight> in_flight_;  ///< the oldest first
  StepInFlight last_;                           ///< the one that ended last, whose results feeds refer to
  int64_t steps_ = 0;
  std::set<std::string> trace_names_;  ///< owns the event names of other ranks
};

}  // namespace plait

// The engine of a recognised decoder: one ragged program, a paged cache, on one rank or several.
#include <algorithm>
#include <limits>
#include <set>

#include "core/base/block.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/generate/adapter_slots.h"
#include "core/generate/engine_commands.h"
#include "core/generate/engines.h"
#include "core/generate/serve_engine.h"
#include "core/passes/adapt/module_names.h"
#include "core/ranks/rank_host.h"

namespace plait {
namespace {

/// Magic number of saved sequences; tokens, pages of keys and values of every layer, and states follow (`save`).
constexpr uint64_t save_magic = 0x34564B5449414C50;  // "PLAITKV4"

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
  StepOutput output;  ///< of the last step, as reported; replica 0's stays empty
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
    step_.replicas.resize(replicas_.size());
  }

  std::unique_ptr<Sequence> open(std::span<const int32_t> tokens, int64_t prompt,
                                 std::shared_ptr<const Adapter> adapter) override {
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
  bool could_fit(int64_t length) const override { return replicas_[0]->cache.could_fit(length); }
  bool shares_cache(const Sequence& a, const Sequence& b) const override { return &kv(a).cache() == &kv(b).cache(); }

  void step(std::span<Feed> feeds) override { run(feeds, false); }
  bool chooses(int64_t edits) const override { return decoder().chooses && edits <= RaggedBounds().edits; }

  void step_hidden(std::span<Feed> feeds) override {
    if (!rank_->model().hidden_program)
      throw Error(Code::unsupported, "this model's graph does not show a hidden state before its head");
    run(feeds, true);
  }

  std::shared_ptr<const Adapter> add_adapter(const std::string& name, const AdapterWeights& weights) override;
  std::vector<std::byte> save(const Sequence& sequence) const override;
  std::unique_ptr<Sequence> restore(std::span<const std::byte> bytes) override;

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
    broadcast(TakeTrace{});
    if (!host_) return out;
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
  Replica& replica_with(int64_t first_rank) const {
    return **std::find_if(replicas_.begin(), replicas_.end(),
                          [&](const auto& one) { return one->place.first(first_rank); });
  }

  RaggedStep& step_of(const Replica& replica) { return step_.replicas[static_cast<size_t>(replica.place.replica)]; }

  void run(std::span<Feed> feeds, bool hidden);
  void compute(std::span<Feed> feeds, bool hidden);
  void fill(std::span<Feed> feeds, bool hidden);
  void feed(const Replica& replica, const Feed& feed);
  void pad(RaggedStep& step) const;
  void distribute(std::span<Feed> feeds);

  /// By page group, the existing pages of a sequence's tokens; those below a window were freed.
  using Presence = std::vector<std::vector<uint8_t>>;
  /// The cache rows of a sequence: its pages, then its states in slot `state`. Pages that hold only the prefix belong
  /// to the adapter.
  std::vector<StoreRow> rows_of(const KvSequence& sequence, const Presence& present, int32_t state) const;
  std::vector<std::byte> read_rows(Replica& replica, const std::vector<StoreRow>& rows) const;
  void write_rows(Replica& replica, const std::vector<StoreRow>& rows, std::span<const std::byte> bytes);
  void write_low_rank(const Adapter& adapter, const AdapterWeights& weights);
  void write_prefix(const std::shared_ptr<const Adapter>& adapter, const AdapterWeights& weights);
  static ReplicaRows rows_on(Replica& replica, const std::vector<StoreRow>& rows) {
    return {replica.place.replica, std::exchange(replica.cache.copies, {}), rows};
  }
  int64_t row_bytes(const StoreRow& row) const {
    return packed_bytes(rank_->place(row, 0).whole.elements(), dtype_bits(rank_->row(row).dtype));
  }

  std::unique_ptr<RaggedRank> rank_;
  std::unique_ptr<RankHost> host_;  ///< controls the other ranks
  std::vector<RankBytes> other_bytes_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  AdapterSlots adapters_;
  ComputeStep step_;  ///< the last one
  int64_t steps_ = 0;
  std::set<std::string> trace_names_;  ///< owns the event names of other ranks
};

/// Appends one feed to its replica's step, token by token.
void RaggedEngine::feed(const Replica& replica, const Feed& feed) {
  RaggedStep& step = step_of(replica);
  const KvSequence& sequence = kv(*feed.sequence);
  const int64_t first = sequence.places(), count = static_cast<int64_t>(feed.tokens.size());
  const int64_t told = sequence.prompt(), prompt = told ? sequence.prefix() + told : first + count;
  const int64_t page_tokens = replica.cache.page_tokens();
  for (int64_t i = 0; i < count; ++i) {
    if (i >= count - feed.rows) step.rows.push_back(static_cast<int32_t>(step.ids.size()));
    step.ids.push_back(feed.tokens[static_cast<size_t>(i)]);
    step.positions.push_back(static_cast<int32_t>(first + i));
    step.lengths.push_back(static_cast<int32_t>(std::max(prompt, first + i + 1)));
    step.segments.push_back(static_cast<int32_t>(step.segment_count));
    step.adapters.push_back(sequence.adapter() ? sequence.adapter()->slot : -1);
    for (size_t group = 0; group < step.slots.size(); ++group) {
      const int32_t page = sequence.table(group)[static_cast<size_t>((first + i) / page_tokens)];
      step.slots[group].push_back(static_cast<int32_t>(page * page_tokens + (first + i) % page_tokens));
    }
  }
  add_choice(step, feed, decoder().chooses);
  step.states.push_back(sequence.state());
  step.states.push_back(sequence.next_state());
  ++step.segment_count;
}

/// Pads with tokens of no segment to the next count that the ranks divide evenly.
void RaggedEngine::pad(RaggedStep& step) const {
  pad_choices(step);
  while (step.ids.size() % static_cast<size_t>(rank_->model().token_multiple)) {
    step.ids.push_back(0);
    step.positions.push_back(0);
    step.lengths.push_back(1);
    step.segments.push_back(-1);
    step.adapters.push_back(-1);
    for (auto& slots : step.slots) slots.push_back(-1);
  }
}

/// Builds the steps of all replicas, feeds in order.
void RaggedEngine::fill(std::span<Feed> feeds, bool hidden) {
  const size_t groups = decoder().groups.size();
  for (RaggedStep& step : step_.replicas) {
    step = {};
    step.hidden = hidden;
    step.slots.resize(groups);
    step.tables.resize(groups);
  }
  for (const Feed& one : feeds) {
    Replica& replica = replica_of(*one.sequence);
    // Page copies of a replica with an empty step are deferred to its next step.
    RaggedStep& step = step_of(replica);
    if (step.empty()) step.copies = std::exchange(replica.cache.copies, {});
    feed(replica, one);
    const int64_t page_tokens = replica.cache.page_tokens();
    const int64_t places = kv(*one.sequence).places() + static_cast<int64_t>(one.tokens.size());
    step.table_width = std::max(step.table_width, (places + page_tokens - 1) / page_tokens);
  }
  for (RaggedStep& step : step_.replicas) pad(step);
  for (const Feed& one : feeds) {
    RaggedStep& step = step_of(replica_of(*one.sequence));
    const auto width = static_cast<size_t>(step.table_width);
    for (size_t group = 0; group < groups; ++group) {
      const auto& table = kv(*one.sequence).table(group);
      std::vector<int32_t>& all = step.tables[group];
      all.resize(all.size() + width, -1);
      std::copy_n(table.begin(), std::min(table.size(), width), all.end() - static_cast<std::ptrdiff_t>(width));
    }
  }
}

void RaggedEngine::run(std::span<Feed> feeds, bool hidden) {
  try {
    for (Feed& feed : feeds) kv(*feed.sequence).cache().begin_step(kv(*feed.sequence));
    compute(feeds, hidden);
  } catch (...) {
    for (Feed& feed : feeds) kv(*feed.sequence).cache().abandon_step(kv(*feed.sequence));
    throw;
  }
  distribute(feeds);
}

/// All ranks run the program on the tokens of all feeds.
void RaggedEngine::compute(std::span<Feed> feeds, bool hidden) {
  for (const Feed& feed : feeds)
    for (int32_t id : feed.tokens)
      if (id < 0 || (vocabulary_ && id >= vocabulary_))
        throw Error(Code::invalid_argument,
                    cat("token id ", id, " is out of range: the vocabulary has ", vocabulary_));
  budget_->check();  // a step that has begun cannot stop: its ranks wait for each other
  fill(feeds, hidden);
  broadcast(step_);
  const auto own = [&] {
    try {
      if (options_.before_step) options_.before_step(0, steps_++);
      if (!step_.replicas[0].empty()) rank_->run(step_.replicas[0]);
    } catch (...) {
      if (rank_->needs_others()) host_->world().communicator().abort(current_error().message());
      throw;
    }
  };
  if (!host_) return own();
  std::vector<int64_t> reporting;
  for (const auto& replica : replicas_)
    if (replica->place.replica > 0 && !step_of(*replica).empty()) reporting.push_back(replica->place.ranks.front());
  for (const Report& report : host_->gather_with(own, reporting, RankHost::Patience::deadline))
    replica_with(report.rank).output = report.as<StepOutput>();
}

/// Distributes each replica's output rows to the feeds.
void RaggedEngine::distribute(std::span<Feed> feeds) {
  struct Next {
    const float *logits, *hidden;
    const int32_t* tokens;
  };
  std::vector<Next> next;
  for (const auto& replica : replicas_) {
    const auto& [logits, hidden, tokens] = replica->output;
    const auto data = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    next.push_back({data(logits), data(hidden), data(tokens)});
  }
  const RaggedStep& own = step_.replicas[0];
  if (!own.empty())
    next[0] = {own.logits ? rank_->logits() : nullptr, rank_->hidden(), own.chooses() ? rank_->tokens() : nullptr};
  for (Feed& feed : feeds) {
    const auto rows = static_cast<size_t>(std::min(feed.rows, static_cast<int64_t>(feed.tokens.size())));
    auto& [logits, hidden, tokens] = next[static_cast<size_t>(replica_of(*feed.sequence).place.replica)];
    feed.logits = {};
    feed.hidden = {};
    feed.chosen = tokens && rows && feed.choice ? tokens[rows - 1] : not_chosen;
    if (tokens) tokens += rows;
    if (logits) {
      if (!feed.choice) feed.logits = {const_cast<float*>(logits), rows * static_cast<size_t>(vocabulary_)};
      logits += rows * static_cast<size_t>(vocabulary_);
    }
    if (hidden) feed.hidden = {hidden, rows * static_cast<size_t>(decoder().hidden)}, hidden += feed.hidden.size();
    kv(*feed.sequence).cache().commit(kv(*feed.sequence), feed.tokens);
  }
}

// ---- whole rows of the Store, gathered from and scattered to their shards: saved sequences, adapters ----

std::vector<StoreRow> RaggedEngine::rows_of(const KvSequence& sequence, const Presence& present,
                                            int32_t state) const {
  std::vector<StoreRow> out;
  const size_t own = sequence.cache().first_own(sequence);
  for (size_t group = 0; group < present.size(); ++group) {
    const int pool = decoder().groups[group].pool;
    for (size_t page = 0; page < present[group].size(); ++page)
      for (int64_t slot = 0; present[group][page] && slot < decoder().pools[static_cast<size_t>(pool)].layers; ++slot)
        for (const auto half : store_keys::cache_halves)
          out.push_back({store_keys::cache_pages(half, pool, slot), sequence.table(group)[own + page]});
  }
  for (size_t index = 0; state >= 0 && index < decoder().states.size(); ++index)
    out.push_back({store_keys::cache_states(static_cast<int64_t>(index)), state});
  return out;
}

/// The rows' bytes, assembled from the parts of the replica's ranks.
std::vector<std::byte> RaggedEngine::read_rows(Replica& replica, const std::vector<StoreRow>& rows) const {
  if (rows.empty()) return {};
  std::vector<int64_t> others = replica.place.ranks;
  std::erase(others, 0);
  if (others.size() < replica.place.ranks.size()) rank_->copy_pages(replica.cache.copies);
  const ReadRows command{rows_on(replica, rows)};
  std::vector<Report> reports;
  if (!others.empty()) {
    broadcast(command);
    reports = host_->gather(others, RankHost::Patience::deadline);
  }
  std::vector<ByteReader> parts;
  for (const Report& report : reports) parts.push_back(report.reader());
  std::vector<std::byte> out;
  for (const StoreRow& row : rows) {
    const TensorView own = rank_->row(row);
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(row)));
    auto put = [&](int64_t rank, const std::byte* part) {
      const RaggedRank::Place at = rank_->place(row, rank);
      put_block({bytes.data(), own.dtype, at.whole}, at.begin, {const_cast<std::byte*>(part), own.dtype, own.shape});
    };
    if (others.size() < replica.place.ranks.size()) put(0, rank_->read(row).data());
    for (size_t i = 0; i < others.size(); ++i)
      put(others[i], parts[i].get_span(static_cast<size_t>(own.bytes())).data());
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

void RaggedEngine::write_rows(Replica& replica, const std::vector<StoreRow>& rows, std::span<const std::byte> bytes) {
  if (replica.place.first(0)) {
    rank_->copy_pages(replica.cache.copies);
    ByteReader in(bytes, "rows of the cache");
    for (const StoreRow& row : rows) rank_->write(row, in, 0);
  }
  broadcast(WriteRows{rows_on(replica, rows), bytes});
}

std::shared_ptr<const Adapter> RaggedEngine::add_adapter(const std::string& name, const AdapterWeights& given) {
  const AdapterWeights weights = as_products(given, decoder().adapted);
  if (context_ && weights.prefix_tokens() >= context_)
    throw Error(Code::invalid_argument,
                cat("its prefix of ", weights.prefix_tokens(), " tokens leaves none of the context's ", context_));
  std::shared_ptr<const Adapter> out = adapters_.take(name, weights);
  if (out->prefix) write_prefix(out, weights);
  else write_low_rank(*out, weights);
  return out;
}

/// Writes rows on each replica; each rank takes its parts.
void RaggedEngine::write_low_rank(const Adapter& adapter, const AdapterWeights& weights) {
  for (size_t index = 0; index < decoder().adapted.size(); ++index) {
    const auto [a, b] = adapters_.rows(index, weights);
    for (const auto& [half, row] :
         {std::pair(store_keys::AdapterHalf::a, &a), std::pair(store_keys::AdapterHalf::b, &b)})
      for (const auto& replica : replicas_)
        write_rows(*replica, {{store_keys::adapter_slots(half, static_cast<int64_t>(index)), adapter.slot}},
                   {row->data(), static_cast<size_t>(row->bytes())});
  }
}

void RaggedEngine::write_prefix(const std::shared_ptr<const Adapter>& adapter, const AdapterWeights& weights) {
  const PagesOfPrefix parts(decoder(), weights, options_.page_tokens);
  for (const auto& replica : replicas_) {
    replica->drop_prefixes();
    std::unique_ptr<KvSequence> pages = replica->cache.open_prefix(adapter->prefix);
    if (!pages)
      throw Error(Code::out_of_memory,
                  cat("the cache has no space for the ", adapter->prefix, " tokens of its prefix"),
                  "raise cache_bytes, remove other adapters, or add it before requests fill the cache");
    for (size_t group = 0; group < decoder().groups.size(); ++group) {
      const PageGroup& one = decoder().groups[group];
      for (size_t page = 0; page < pages->table(group).size(); ++page)
        for (size_t slot = 0; pages->table(group)[page] >= 0 && slot < one.layers.size(); ++slot)
          for (const auto half : store_keys::cache_halves) {
            const bool values = half == store_keys::CacheHalf::values;
            const Tensor row = parts.row(one.layers[slot], static_cast<int64_t>(page), values);
            const std::string key = store_keys::cache_pages(half, one.pool, static_cast<int64_t>(slot));
            write_rows(*replica, {{key, pages->table(group)[page]}}, {row.data(), static_cast<size_t>(row.bytes())});
          }
    }
    replica->prefixes.push_back({adapter, std::move(pages)});
  }
}

std::vector<std::byte> RaggedEngine::save(const Sequence& sequence) const {
  const KvSequence& source = kv(sequence);
  Replica& replica = replica_of(sequence);
  ByteWriter out;
  out.put(save_magic);
  out.put(static_cast<uint64_t>(decoder().cache_dtype));
  out.put(static_cast<uint64_t>(replica.cache.page_tokens()));
  out.put(static_cast<uint64_t>(decoder().layers.size()));
  out.put(static_cast<uint64_t>(decoder().state_bytes()));
  if (!decoder().length_limits.empty()) out.put(static_cast<uint64_t>(source.prompt()));
  out.put(source.adapter() ? source.adapter()->contents : uint64_t{0});
  out.put_text(source.adapter() ? source.adapter()->name : std::string());
  out.put_list(source.tokens());
  Presence present(decoder().groups.size());
  const int64_t page_tokens = replica.cache.page_tokens();
  const auto held = static_cast<size_t>((source.places() + page_tokens - 1) / page_tokens);
  for (size_t group = 0; group < present.size(); ++group) {
    for (size_t page = replica.cache.first_own(source); source.length() > 0 && page < held; ++page)
      present[group].push_back(source.table(group)[page] >= 0);
    out.put_list(present[group]);
  }
  const std::vector<std::byte> rows = read_rows(replica, rows_of(source, present, source.state()));
  out.put_bytes(rows.data(), rows.size());
  return out.take();
}

std::unique_ptr<Sequence> RaggedEngine::restore(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "the saved conversation", "it must come from the same model, dtype and version");
  auto number = [&] { return in.get<uint64_t>(); };
  if (number() != save_magic) in.fail("is not one");
  if (number() != static_cast<uint64_t>(decoder().cache_dtype) ||
      number() != static_cast<uint64_t>(options_.page_tokens) || number() != decoder().layers.size() ||
      number() != static_cast<uint64_t>(decoder().state_bytes()))
    in.fail("is of another model or dtype");
  const uint64_t prompt = decoder().length_limits.empty() ? 0 : number();
  if (prompt > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) in.fail("has no such prompt");
  const uint64_t contents = number();
  const std::string name = in.get_text();
  std::shared_ptr<const Adapter> adapter = name.empty() ? nullptr : adapters_.find(contents);
  if (!adapter && !name.empty())
    throw Error(
        Code::not_found,
        cat("the saved conversation was computed with an adapter, then called ", quote(name), ", that is not there"),
        "add that adapter first, as it was");
  const auto tokens = in.get_list<int32_t>();
  for (int32_t token : tokens)
    if (token < 0 || token >= vocabulary_) in.fail("holds a token that the model does not have");
  std::unique_ptr<Sequence> opened = open({}, 0, std::move(adapter));
  KvSequence& sequence = kv(*opened);
  if (!tokens.empty() && !sequence.cache().reserve(sequence, static_cast<int64_t>(tokens.size())))
    throw Error(Code::out_of_memory, cat("the cache has no space for a conversation of ", tokens.size(), " tokens"),
                "raise cache_bytes, or release other conversations");
  Presence present(decoder().groups.size());
  const size_t own = sequence.cache().first_own(sequence);
  for (size_t group = 0; group < present.size(); ++group) {
    present[group] = in.get_list<uint8_t>();
    if (present[group].size() != (tokens.empty() ? 0 : sequence.table(group).size() - own))
      in.fail("does not have the pages of its tokens");
    for (size_t page = 0; page < present[group].size(); ++page)
      if (present[group][page] && sequence.table(group)[own + page] < 0)
        in.fail("has pages that a window has passed");
  }
  const std::vector<StoreRow> rows = rows_of(sequence, present, sequence.next_state());
  size_t size = 0;
  for (const StoreRow& row : rows) size += static_cast<size_t>(row_bytes(row));
  const std::span<const std::byte> bytes_of_rows = in.get_span(size);
  if (!in.at_end()) in.fail("is longer than its tokens");
  write_rows(replica_of(sequence), rows, bytes_of_rows);
  sequence.cache().adopt(sequence, tokens, static_cast<int64_t>(prompt));
  return opened;
}

/// Ranks as threads, which share `weights`.
std::unique_ptr<RankHost> host_of_threads(const Graph& graph, const CompileOptions& compile,
                                          const EngineOptions& options, std::shared_ptr<Store> weights) {
  CommOptions comm;
  comm.deadline_s = options.rank_timeout_s;
  CompileOptions with = compile;
  with.log = nullptr;  // rank 0 logs it
  with.dump = nullptr;
  const auto serve = [&graph, options, weights, with](World& world, LoadProgress& progress) {
    CompileOptions own = with;
    own.progress = &progress;
    serve_engine(world, graph, own, options, weights, &progress);
  };
  return std::make_unique<RankHost>(compile.mesh, comm, serve);
}

}  // namespace

std::unique_ptr<Engine> make_ragged_engine(const Graph& graph, const CompileOptions& compile,
                                           const EngineOptions& given, LoadProgress* progress,
                                           std::shared_ptr<World> world, std::string& why_not) {
  const Mesh& mesh = compile.mesh;
  std::unique_ptr<RankHost> host;
  std::shared_ptr<Store> weights;
  if (world) {
    host = std::make_unique<RankHost>(mesh, std::move(world));
  } else if (mesh.ranks() > 1) {
    weights = std::make_shared<Store>();
    host = host_of_threads(graph, compile, given, weights);
  }
  const EngineOptions options = rank_options(given, compile, host ? host->world().processors() : usable_processors());

  // The share of the remaining work; passes over the largest model take as long as reading a few hundred megabytes.
  constexpr double compile_share = 0.25;
  constexpr int64_t passes_and_programs = 8;
  RaggedModel model;
  const auto compile_own = [&] {
    if (progress) progress->stage(compile_share, passes_and_programs);
    model = compile_rank(graph, compile, options);
    why_not = model.decoder.why_not;
    if (!model.program && mesh.ranks() > 1)
      throw Error(Code::unsupported, cat("only a recognised decoder runs on a mesh, and this one is not: ", why_not),
                  "run it without the option mesh");
    return identities_of(model);
  };
  if (host) host->agree(compile_own);
  else compile_own();  // as the only rank
  if (!model.program) return nullptr;

  const CacheCapacity capacity = capacity_for(model.decoder, mesh, options);
  auto budget = std::make_shared<MemoryBudget>(options.memory_bytes);
  auto rank =
      std::make_unique<RaggedRank>(std::move(model), options, budget, std::move(weights), compile.own_device());
  std::vector<RankBytes> others;
  if (host) {
    host->broadcast(EngineCommands::encode(LoadArrays{}));
    for (const Report& report : host->gather_loaded([&] { rank->load(progress); }))
      others.push_back(report.as<RankBytes>());
    host->broadcast(EngineCommands::encode(JoinGroups{}));
  } else {
    rank->load(progress);
  }
  rank->join(host ? &host->world() : nullptr);
  return std::make_unique<RaggedEngine>(options, capacity, std::move(rank), std::move(budget), std::move(host),
                                        std::move(others));
}

}  // namespace plait

// Steps of a recognised decoder's engine, and how it is made.
#include "core/generate/ragged_engine.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

/// Appends one feed to its replica's step, token by token.
void RaggedEngine::feed(const Feed& feed, RaggedStep& step) const {
  const KvSequence& sequence = kv(*feed.sequence);
  const int64_t first = sequence.places(), count = static_cast<int64_t>(feed.tokens.size());
  const int64_t told = sequence.prompt(), prompt = told ? sequence.prefix() + told : first + count;
  const int64_t page_tokens = sequence.cache().page_tokens();
  const auto given_size = static_cast<int32_t>(decoder().interface.given_size);
  const bool places = decoder().interface.takes_places();
  int64_t position = places ? sequence.next_position(feed.given) : 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i >= count - feed.rows) step.rows.push_back(static_cast<int32_t>(step.ids.size()));
    const int32_t id = feed.tokens[static_cast<size_t>(i)];
    step.ids.push_back(std::max(id, 0));
    if (given_size) step.given_at.push_back(id < 0 ? static_cast<int32_t>(step.given.size()) / given_size : -1);
    if (id < 0) {
      const float* row = row_of(feed.given, id);
      step.given.insert(step.given.end(), row, row + given_size);
    }
    step.positions.push_back(static_cast<int32_t>(first + i));
    if (places) {
      const GivenPlace place = place_of(feed.given, id);
      for (int32_t offset : place.offset) step.mrope_positions.push_back(static_cast<int32_t>(position + offset));
      position += place.advance;
    }
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
  if (step.given.empty()) step.given.resize(static_cast<size_t>(decoder().interface.given_size));
  while (step.ids.size() % static_cast<size_t>(rank_->model().token_multiple)) {
    step.ids.push_back(0);
    if (decoder().interface.given_size) step.given_at.push_back(-1);
    step.positions.push_back(0);
    if (decoder().interface.takes_places())
      step.mrope_positions.resize(step.mrope_positions.size() + GivenPlace().offset.size());
    step.lengths.push_back(1);
    step.segments.push_back(-1);
    step.adapters.push_back(-1);
    for (auto& slots : step.slots) slots.push_back(-1);
  }
}

/// Builds the steps of all replicas, feeds in order.
void RaggedEngine::fill(std::span<Feed> feeds, bool hidden, ComputeStep& out) {
  const size_t groups = decoder().groups.size();
  out.replicas.resize(replicas_.size());
  for (RaggedStep& step : out.replicas) {
    step.hidden = hidden;
    step.slots.resize(groups);
    step.tables.resize(groups);
  }
  for (const Feed& one : feeds) {
    Replica& replica = replica_of(*one.sequence);
    // Page copies of a replica with an empty step are deferred to its next step.
    RaggedStep& step = step_of(out, replica);
    if (step.empty()) step.copies = std::exchange(replica.cache.copies, {});
    feed(one, step);
    const int64_t page_tokens = replica.cache.page_tokens();
    const int64_t places = kv(*one.sequence).places() + static_cast<int64_t>(one.tokens.size());
    step.table_width = std::max(step.table_width, (places + page_tokens - 1) / page_tokens);
  }
  for (RaggedStep& step : out.replicas) pad(step);
  for (const Feed& one : feeds) {
    RaggedStep& step = step_of(out, replica_of(*one.sequence));
    const auto width = static_cast<size_t>(step.table_width);
    for (size_t group = 0; group < groups; ++group) {
      const auto& table = kv(*one.sequence).table(group);
      std::vector<int32_t>& all = step.tables[group];
      all.resize(all.size() + width, -1);
      std::copy_n(table.begin(), std::min(table.size(), width), all.end() - static_cast<std::ptrdiff_t>(width));
    }
  }
}

/// The sequences are as before the step, and page copies that were due are due again: those that were made may be made twice.
void RaggedEngine::abandon(StepInFlight& flight) {
  for (Feed& feed : flight.feeds) kv(*feed.sequence).cache().abandon_step(kv(*feed.sequence));
  if (flight.step.replicas.empty()) return;
  for (const auto& replica : replicas_) {
    std::vector<KvCache::Copy>& due = step_of(flight.step, *replica).copies;
    due.insert(due.end(), replica->cache.copies.begin(), replica->cache.copies.end());
    replica->cache.copies.swap(due);
  }
}

/// Tables of angles end with the context; an image's positions may lie beyond its tokens' places.
void RaggedEngine::check_places(const Feed& feed) const {
  int64_t position = feed.sequence->next_position(feed.given);
  for (int32_t id : feed.tokens) {
    const GivenPlace place = place_of(feed.given, id);
    const int64_t last = position + *std::max_element(place.offset.begin(), place.offset.end());
    if (last >= decoder().context)
      throw Error(Code::invalid_argument,
                  cat("a token has the position ", last, ", and the model's tables end at ", decoder().context),
                  "shorten the prompt, or its videos");
    position += place.advance;
  }
}

void RaggedEngine::check(std::span<const Feed> feeds, bool hidden) const {
  if (hidden && !rank_->model().hidden_program)
    throw Error(Code::unsupported, "this model's graph does not show a hidden state before its head");
  for (const Feed& feed : feeds)
    for (int32_t id : feed.tokens)
      if (id < 0 ? !decoder().interface.given_size || !row_of(feed.given, id) : vocabulary_ && id >= vocabulary_)
        throw Error(Code::invalid_argument,
                    cat("token id ", id, " is out of range: the vocabulary has ", vocabulary()));
  if (decoder().interface.takes_places() && decoder().context)
    for (const Feed& feed : feeds) check_places(feed);
  budget_->check();  // a step that has begun cannot stop: its ranks wait for each other
}

/// All ranks run the program on the tokens of all feeds. Rank 0's part is done when this returns: later stages run on their own.
void RaggedEngine::begin(std::span<Feed> feeds, bool hidden) {
  PLAIT_ASSERT(static_cast<int64_t>(in_flight_.size()) < steps_in_flight());
  StepInFlight& flight = in_flight_.emplace_back();
  flight.feeds = feeds;
  try {
    flight.outputs.resize(replicas_.size());
    for (Feed& feed : feeds) kv(*feed.sequence).cache().begin_step(kv(*feed.sequence));
    check(feeds, hidden);
    fill(feeds, hidden, flight.step);
    broadcast(flight.step);
  } catch (...) {
    abandon(flight);
    in_flight_.pop_back();
    throw;
  }
  try {
    if (options_.before_step) options_.before_step(0, steps_++);
    if (!flight.step.replicas[0].empty()) rank_->run(flight.step.replicas[0]);
  } catch (...) {
    flight.failure = std::current_exception();
    if (rank_->needs_others()) host_->world().communicator().abort(current_error().message());
  }
}

void RaggedEngine::finish() {
  PLAIT_ASSERT(!in_flight_.empty());
  receive(in_flight_.front());
  last_ = std::move(in_flight_.front());
  in_flight_.pop_front();
  try {
    if (last_.failure) std::rethrow_exception(last_.failure);
    distribute(last_);
  } catch (...) {
    abandon(last_);
    throw;
  }
}

void RaggedEngine::receive(StepInFlight& flight) const {
  if (flight.received) return;
  flight.received = true;
  if (!host_) return;
  try {
    std::vector<int64_t> reporting, of_replica;
    for (const auto& replica : replicas_)
      if (replica->place.reporter > 0 && !step_of(flight.step, *replica).empty()) {
        reporting.push_back(replica->place.reporter);
        of_replica.push_back(replica->place.replica);
      }
    const auto own = [&] {
      if (flight.failure) std::rethrow_exception(flight.failure);
    };
    const std::vector<Report> reports = host_->gather_with(own, reporting, RankHost::Patience::deadline);
    for (size_t i = 0; i < reports.size(); ++i)
      flight.outputs[static_cast<size_t>(of_replica[i])] = reports[i].as<StepOutput>();
  } catch (...) {
    flight.failure = std::current_exception();
  }
}

void RaggedEngine::receive_all() const {
  for (StepInFlight& flight : in_flight_) receive(flight);
}

/// Distributes each replica's output rows to the feeds.
void RaggedEngine::distribute(StepInFlight& flight) {
  struct Next {
    const float *logits, *hidden;
    const int32_t* tokens;
  };
  std::vector<Next> next;
  for (const auto& [logits, hidden, tokens] : flight.outputs) {
    const auto data = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    next.push_back({data(logits), data(hidden), data(tokens)});
  }
  const RaggedStep& own = flight.step.replicas[0];
  if (!own.empty() && replicas_[0]->place.reporter == 0)
    next[0] = {own.logits ? rank_->logits() : nullptr, rank_->hidden(), own.chooses() ? rank_->tokens() : nullptr};
  for (Feed& feed : flight.feeds) kv(*feed.sequence).cache().prepare_commit(kv(*feed.sequence), feed.tokens.size());
  for (Feed& feed : flight.feeds) {
    const auto rows = static_cast<size_t>(std::min(feed.rows, static_cast<int64_t>(feed.tokens.size())));
    auto& [logits, hidden, tokens] = next[static_cast<size_t>(replica_of(*feed.sequence).place.replica)];
    feed.logits = {};
    feed.hidden = {};
    feed.chosen = tokens && rows && feed.choice ? tokens[rows - 1] : not_chosen;
    if (tokens) tokens += rows;
    if (logits) {
      if (!feed.choice) feed.logits = {const_cast<float*>(logits), rows * static_cast<size_t>(vocabulary())};
      logits += rows * static_cast<size_t>(vocabulary());
    }
    if (hidden) feed.hidden = {hidden, rows * static_cast<size_t>(decoder().hidden)}, hidden += feed.hidden.size();
    kv(*feed.sequence).cache().commit(kv(*feed.sequence), feed.tokens);
  }
}

namespace {

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
  EngineOptions options = rank_options(given, compile, host ? host->world().processors() : usable_processors());

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

  auto budget = std::make_shared<MemoryBudget>(options.memory_bytes);
  // A stage's run is not cancelled by the engine's budget, since later stages would wait for it.
  auto memory = model.stages.count() > 1 ? std::make_shared<MemoryBudget>(options.memory_bytes) : budget;
  auto rank = std::make_unique<RaggedRank>(std::move(model), options, std::move(memory), std::move(weights),
                                           compile.own_device());
  // Groups of devices take memory too, so they are made before it is measured.
  if (host) host->broadcast(EngineCommands::encode(JoinGroups{}));
  rank->join(host ? &host->world() : nullptr);
  std::vector<RankNeeds> needs;
  const auto measure_own = [&] { needs.push_back(rank->needs()); };
  if (host) {
    host->broadcast(EngineCommands::encode(MeasureMemory{}));
    for (const Report& report : host->gather_loaded(measure_own)) needs.push_back(report.as<RankNeeds>());
  } else {
    measure_own();
  }
  const CacheCapacity capacity = fitting_capacity(rank->model().decoder, mesh, options, needs);
  if (!options.cache_bytes)
    for (const RankNeeds& one : needs) options.cache_bytes += one.cache_bytes(capacity);
  std::vector<RankBytes> others;
  const auto load_own = [&] { rank->load(capacity, progress); };
  if (host) {
    host->broadcast(EngineCommands::encode(LoadArrays{capacity}));
    for (const Report& report : host->gather_loaded(load_own)) others.push_back(report.as<RankBytes>());
  } else {
    load_own();
  }
  return std::make_unique<RaggedEngine>(options, capacity, std::move(rank), std::move(budget), std::move(host),
                                        std::move(others));
}

}  // namespace plait

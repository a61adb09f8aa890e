// The engine of a recognised decoder: one ragged program, a paged cache.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/engines.h"
#include "core/generate/kv_cache.h"

namespace plait {
namespace {

/// What a sequence's bytes begin with: tokens, pages of keys and values of every layer, and states, as `save` writes them.
constexpr uint64_t save_magic = 0x32564B5449414C50;  // "PLAITKV2"

class RaggedEngine : public Engine {
 public:
  RaggedEngine(RaggedModel model, const EngineOptions& options, const CacheRoom& room, LoadProgress* progress)
      : Engine(options),
        model_(std::move(model)),
        pool_(options.threads),
        cache_(model_.decoder, room, options.page_tokens) {
    vocabulary_ = model_.decoder.vocabulary;
    context_ = model_.decoder.context;
    if (options.context) context_ = context_ ? std::min(context_, options.context) : options.context;
    store_.load(*model_.program, bounds(*model_.program), &pool_, progress);
    executor_ = std::make_unique<Executor>(model_.program, store_, pool_, room_);
    touch_first_pages(options.step_tokens);
  }

  std::unique_ptr<Sequence> open(std::span<const int32_t> tokens, int64_t prompt) override {
    return cache_.open(tokens, prompt);
  }
  bool continues(const Sequence& sequence, int64_t prompt) const override {
    return sequence.length() == 0 || cache_.exceeded(mine(sequence).prompt()) == cache_.exceeded(prompt);
  }
  std::unique_ptr<Sequence> fork(const Sequence& sequence) override { return cache_.fork(mine(sequence)); }
  bool reserve(Sequence& sequence, int64_t tokens) override { return cache_.reserve(mine(sequence), tokens); }
  bool could_fit(int64_t length) const override { return cache_.could_fit(length); }

  void step(std::span<Feed> feeds) override { run(feeds, *executor_, true); }

  void step_hidden(std::span<Feed> feeds) override {
    if (!model_.hidden_program)
      throw Error(Code::unsupported, "this model's graph does not show a hidden state before its head");
    if (!hidden_executor_) hidden_executor_ = std::make_unique<Executor>(model_.hidden_program, store_, pool_, room_);
    run(feeds, *hidden_executor_, false);
  }

  std::vector<std::byte> save(const Sequence& sequence) const override;
  std::unique_ptr<Sequence> restore(std::span<const std::byte> bytes) override;

  EngineStats stats() const override {
    EngineStats out;
    out.pages = cache_.pages();
    out.pages_free = cache_.pages_free();
    out.pages_shared = cache_.pages_shared();
    out.prefix_hits = cache_.prefix_hits();
    out.states = cache_.states();
    out.states_free = cache_.states_free();
    for (const StoreEntry& entry : model_.program->entries)
      (entry.source ? out.weight_bytes : out.cache_bytes) += store_.get(entry.key).bytes();
    out.arena_bytes = executor_->bytes();
    return out;
  }
  const Decoder& decoder() const override { return model_.decoder; }
  void set_profiling(bool on) override { executor_->set_profiling(on); }
  Profile profile() const override { return executor_->profile(); }

 private:
  static KvSequence& mine(Sequence& sequence) { return static_cast<KvSequence&>(sequence); }
  static const KvSequence& mine(const Sequence& sequence) { return static_cast<const KvSequence&>(sequence); }
  static std::vector<int64_t> bounds(const Program& program) {
    std::vector<int64_t> out;
    for (SymbolId id = 0; id < program.symbols.size(); ++id) out.push_back(program.symbols[id].bound);
    return out;
  }

  void touch_first_pages(int64_t tokens);
  void run(std::span<Feed> feeds, Executor& executor, bool with_logits);
  void compute(std::span<Feed> feeds, Executor& executor);
  void fill(std::span<Feed> feeds);
  void copy_pages();
  /// The arrays that hold slot `slot` of pool `pool`: keys, then values.
  std::pair<Tensor, Tensor> arrays(size_t pool, int64_t slot) const {
    return {store_.get(cat("cache.k.", pool, ".", slot)), store_.get(cat("cache.v.", pool, ".", slot))};
  }
  /// The bytes of state `index` in a slot.
  std::span<std::byte> state_bytes(size_t index, int32_t slot) const {
    const Tensor array = store_.get(cat("cache.s.", index));
    const auto size = static_cast<size_t>(model_.decoder.states[index].bytes());
    return {array.data() + static_cast<size_t>(slot) * size, size};
  }

  RaggedModel model_;
  ThreadPool pool_;
  Store store_;
  KvCache cache_;
  std::unique_ptr<Executor> executor_, hidden_executor_;
  // The inputs of the step at hand.
  std::vector<int64_t> ids_;
  std::vector<int32_t> positions_, segments_, rows_, lengths_, states_;
  std::vector<std::vector<int32_t>> slots_, tables_;
  int64_t table_width_ = 1;
};

/// The system hands memory out as it is first written, for 2 to 4 us each 4 KB: what the first step of so many tokens
/// fills is written now, so that the first prompt need not wait for it. The cache gives the lowest pages out first.
void RaggedEngine::touch_first_pages(int64_t tokens) {
  const int64_t pages = (tokens + cache_.page_tokens() - 1) / cache_.page_tokens();
  for (const StoreEntry& entry : model_.program->entries) {
    if (entry.source) continue;
    const Tensor state = store_.get(entry.key);
    // A sequence has two slots of states in a step.
    const int64_t all = state.shape()[0], first = entry.key.starts_with("cache.s.") ? 2 : pages;
    const int64_t count = std::min(first, all);
    if (count > 0) std::memset(state.data(), 0, static_cast<size_t>(state.bytes() / all * count));
  }
}

/// One token after the other, feeds in their order.
void RaggedEngine::fill(std::span<Feed> feeds) {
  ids_.clear();
  positions_.clear();
  lengths_.clear();
  segments_.clear();
  rows_.clear();
  states_.clear();
  size_t groups = model_.decoder.groups.size();
  int64_t page_tokens = cache_.page_tokens();
  table_width_ = 1;
  for (const Feed& feed : feeds) {
    int64_t first = feed.sequence->length(), count = static_cast<int64_t>(feed.tokens.size());
    const int64_t told = mine(*feed.sequence).prompt(), prompt = told ? told : first + count;
    for (int64_t i = 0; i < count; ++i) {
      if (i >= count - feed.rows) rows_.push_back(static_cast<int32_t>(ids_.size()));
      ids_.push_back(feed.tokens[static_cast<size_t>(i)]);
      positions_.push_back(static_cast<int32_t>(first + i));
      lengths_.push_back(static_cast<int32_t>(std::max(prompt, first + i + 1)));
      segments_.push_back(static_cast<int32_t>(&feed - feeds.data()));
    }
    table_width_ = std::max(table_width_, (first + count + page_tokens - 1) / page_tokens);
    states_.push_back(mine(*feed.sequence).state());
    states_.push_back(mine(*feed.sequence).next_state());
  }
  slots_.assign(groups, {});
  tables_.assign(groups, std::vector<int32_t>(feeds.size() * static_cast<size_t>(table_width_), -1));
  for (size_t group = 0; group < groups; ++group)
    for (size_t i = 0; i < feeds.size(); ++i) {
      const auto& table = mine(*feeds[i].sequence).table(group);
      auto used = std::min(table.size(), static_cast<size_t>(table_width_));
      std::copy_n(table.begin(), used,
                  tables_[group].begin() + static_cast<std::ptrdiff_t>(i * static_cast<size_t>(table_width_)));
      for (size_t k = 0; k < feeds[i].tokens.size(); ++k) {
        int64_t position = feeds[i].sequence->length() + static_cast<int64_t>(k);
        int32_t page = table[static_cast<size_t>(position / page_tokens)];
        slots_[group].push_back(static_cast<int32_t>(page * page_tokens + position % page_tokens));
      }
    }
}

/// A fork's half-full page gets its own copy before anything is written in this step.
void RaggedEngine::copy_pages() {
  for (const KvCache::Copy& copy : cache_.copies) {
    auto pool = static_cast<size_t>(copy.pool);
    for (int64_t slot = 0; slot < model_.decoder.pools[pool].layers; ++slot) {
      auto [keys, values] = arrays(pool, slot);
      for (const Tensor& array : {keys, values}) {
        int64_t bytes = array.bytes() / array.shape()[0];
        std::memcpy(array.data() + copy.to * bytes, array.data() + copy.from * bytes, static_cast<size_t>(bytes));
      }
    }
  }
  cache_.copies.clear();
}

void RaggedEngine::run(std::span<Feed> feeds, Executor& executor, bool with_logits) {
  try {
    for (Feed& feed : feeds) cache_.begin_step(mine(*feed.sequence));
    compute(feeds, executor);
  } catch (...) {
    for (Feed& feed : feeds) cache_.abandon_step(mine(*feed.sequence));
    throw;
  }
  float* logits = with_logits ? executor.output(0).as<float>() : nullptr;
  int hidden_output = with_logits ? 1 : 0;
  const float* hidden = model_.decoder.has_hidden ? executor.output(hidden_output).as<float>() : nullptr;
  for (Feed& feed : feeds) {
    auto rows = static_cast<size_t>(std::min(feed.rows, static_cast<int64_t>(feed.tokens.size())));
    feed.logits = {};
    feed.hidden = {};
    if (logits) feed.logits = {logits, rows * static_cast<size_t>(vocabulary_)}, logits += feed.logits.size();
    if (hidden)
      feed.hidden = {hidden, rows * static_cast<size_t>(model_.decoder.hidden)}, hidden += feed.hidden.size();
    cache_.commit(mine(*feed.sequence), feed.tokens);
  }
}

/// Runs the program on the tokens of all feeds.
void RaggedEngine::compute(std::span<Feed> feeds, Executor& executor) {
  fill(feeds);
  copy_pages();
  for (int64_t id : ids_)
    if (id < 0 || (vocabulary_ && id >= vocabulary_))
      throw Error(Code::invalid_argument, cat("token id ", id, " is out of range: the vocabulary has ", vocabulary_));
  auto tokens = static_cast<int64_t>(ids_.size()), segments = static_cast<int64_t>(feeds.size());
  auto view = [](auto& values, DType dtype, const Shape& shape) {
    return TensorView{reinterpret_cast<std::byte*>(values.data()), dtype, shape};
  };
  std::vector<TensorView> inputs;
  for (const std::string& name : executor.program().input_names) {
    size_t dot = name.find('.');
    size_t group = 0;
    if (int64_t number; dot != std::string::npos && parse_int(name.substr(dot + 1), number))
      group = static_cast<size_t>(number);
    std::string stem = name.substr(0, dot);
    if (name == "positions") inputs.push_back(view(positions_, DType::i32, {1, tokens}));
    else if (name == "lengths") inputs.push_back(view(lengths_, DType::i32, {1, tokens}));
    else if (name == "segments") inputs.push_back(view(segments_, DType::i32, {1, tokens}));
    else if (name == "rows") inputs.push_back(view(rows_, DType::i32, {1, static_cast<int64_t>(rows_.size())}));
    else if (name == "states") inputs.push_back(view(states_, DType::i32, {segments, 2}));
    else if (stem == "slots") inputs.push_back(view(slots_[group], DType::i32, {1, tokens}));
    else if (stem == "pages") inputs.push_back(view(tables_[group], DType::i32, {segments, table_width_}));
    else inputs.push_back(view(ids_, DType::i64, {1, tokens}));
  }
  executor.run(inputs);
}

std::vector<std::byte> RaggedEngine::save(const Sequence& sequence) const {
  const KvSequence& source = mine(sequence);
  std::vector<std::byte> out;
  auto put = [&](const void* data, size_t size) {
    auto* bytes = static_cast<const std::byte*>(data);
    out.insert(out.end(), bytes, bytes + size);
  };
  auto put_number = [&](uint64_t number) { put(&number, sizeof number); };
  put_number(save_magic);
  put_number(static_cast<uint64_t>(model_.decoder.cache_dtype));
  put_number(static_cast<uint64_t>(cache_.page_tokens()));
  put_number(model_.decoder.layers.size());
  put_number(static_cast<uint64_t>(model_.decoder.state_bytes()));
  if (!model_.decoder.length_limits.empty()) put_number(static_cast<uint64_t>(source.prompt()));
  put_number(source.tokens().size());
  put(source.tokens().data(), source.tokens().size() * sizeof(int32_t));
  for (size_t group = 0; group < model_.decoder.groups.size(); ++group) {
    auto pool = static_cast<size_t>(model_.decoder.groups[group].pool);
    const auto& table = source.table(group);
    auto held = static_cast<size_t>((source.length() + cache_.page_tokens() - 1) / cache_.page_tokens());
    for (size_t page = 0; page < held; ++page) {
      put_number(table[page] >= 0);
      if (table[page] < 0) continue;
      for (int64_t slot = 0; slot < model_.decoder.pools[pool].layers; ++slot) {
        auto [keys, values] = arrays(pool, slot);
        for (const Tensor& array : {keys, values}) {
          int64_t bytes = array.bytes() / array.shape()[0];
          put(array.data() + table[page] * bytes, static_cast<size_t>(bytes));
        }
      }
    }
  }
  for (size_t index = 0; source.state() >= 0 && index < model_.decoder.states.size(); ++index) {
    std::span<std::byte> bytes = state_bytes(index, source.state());
    put(bytes.data(), bytes.size());
  }
  return out;
}

std::unique_ptr<Sequence> RaggedEngine::restore(std::span<const std::byte> bytes) {
  auto damaged = [](std::string_view what) {
    return Error(Code::bad_model, cat("the saved conversation ", what),
                 "it must come from the same model, dtype and version");
  };
  auto get = [&](void* data, size_t size) {
    if (size > bytes.size()) throw damaged("is cut short");
    if (size) std::memcpy(data, bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  auto number = [&] {
    uint64_t out;
    get(&out, sizeof out);
    return out;
  };
  if (number() != save_magic) throw damaged("is none");
  if (number() != static_cast<uint64_t>(model_.decoder.cache_dtype) ||
      number() != static_cast<uint64_t>(cache_.page_tokens()) || number() != model_.decoder.layers.size() ||
      number() != static_cast<uint64_t>(model_.decoder.state_bytes()))
    throw damaged("is of another model or dtype");
  const uint64_t prompt = model_.decoder.length_limits.empty() ? 0 : number();
  if (prompt > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) throw damaged("has no such prompt");
  uint64_t count = number();
  if (count > bytes.size() / sizeof(int32_t)) throw damaged("is cut short");
  std::vector<int32_t> tokens(count);
  get(tokens.data(), count * sizeof(int32_t));
  for (int32_t token : tokens)
    if (token < 0 || token >= vocabulary_) throw damaged("holds a token that the model does not have");
  auto sequence = cache_.open({});
  if (!tokens.empty() && !cache_.reserve(*sequence, static_cast<int64_t>(count)))
    throw Error(Code::out_of_memory, cat("the cache has no room for a conversation of ", count, " tokens"),
                "raise cache_bytes, or release other conversations");
  for (size_t group = 0; group < model_.decoder.groups.size(); ++group) {
    auto pool = static_cast<size_t>(model_.decoder.groups[group].pool);
    const auto& table = sequence->table(group);
    for (int32_t page : table) {
      if (!number()) continue;
      for (int64_t slot = 0; slot < model_.decoder.pools[pool].layers; ++slot) {
        auto [keys, values] = arrays(pool, slot);
        for (const Tensor& array : {keys, values}) {
          int64_t size = array.bytes() / array.shape()[0];
          get(array.data() + page * size, static_cast<size_t>(size));
        }
      }
    }
  }
  for (size_t index = 0; sequence->next_state() >= 0 && index < model_.decoder.states.size(); ++index) {
    std::span<std::byte> to = state_bytes(index, sequence->next_state());
    get(to.data(), to.size());
  }
  if (!bytes.empty()) throw damaged("is longer than its tokens");
  cache_.adopt(*sequence, tokens, static_cast<int64_t>(prompt));
  return sequence;
}

/// Slots of states under the budget: as many as there is room for sequences of 256 tokens, but where there are pages too no
/// more than half of it; some of them for what a step writes.
void room_for_states(const Decoder& decoder, const EngineOptions& options, int64_t page_set, CacheRoom& room) {
  const int64_t bytes = decoder.state_bytes();
  if (bytes == 0) return;
  constexpr int64_t usual_length = 256;
  const int64_t pages = (usual_length + options.page_tokens - 1) / options.page_tokens;
  const int64_t most = (page_set ? options.cache_bytes / 2 : options.cache_bytes) / bytes;
  const int64_t slots = std::min<int64_t>(most, std::numeric_limits<int32_t>::max());
  if (slots < 2)
    throw Error(
        Code::out_of_memory,
        cat("a cache of ", human_bytes(options.cache_bytes), " does not hold the states of one sequence, which need ",
            human_bytes(bytes), ", twice in a step", page_set ? ", in half of it" : ""),
        "raise cache_bytes");
  const int64_t held = std::max<int64_t>(1, options.cache_bytes / (bytes + pages * page_set));
  room.held_states = std::min(held, std::max(slots / 2, slots - options.step_sequences));
  room.spare_states = std::min(room.held_states, options.step_sequences);
}

/// Slots, and pages of each pool, under the budget: shares in proportion to the bytes that a token needs in each.
CacheRoom room_for(const Decoder& decoder, const EngineOptions& options) {
  std::vector<int64_t> page_bytes, groups(decoder.pools.size());
  int64_t all = 0;
  for (const PageGroup& group : decoder.groups) ++groups[static_cast<size_t>(group.pool)];
  for (size_t pool = 0; pool < decoder.pools.size(); ++pool) {
    page_bytes.push_back(decoder.pools[pool].page_bytes(options.page_tokens, decoder.cache_dtype));
    all += page_bytes[pool] * groups[pool];
  }
  CacheRoom room;
  room_for_states(decoder, options, all, room);
  const int64_t left = options.cache_bytes - (room.held_states + room.spare_states) * decoder.state_bytes();
  for (size_t pool = 0; pool < decoder.pools.size(); ++pool) {
    auto share = static_cast<int64_t>(
        static_cast<double>(left) * static_cast<double>(page_bytes[pool] * groups[pool]) / static_cast<double>(all));
    room.pages.push_back(share / page_bytes[pool]);
    if (room.pages.back() < groups[pool])
      throw Error(Code::out_of_memory,
                  cat("a cache of ", human_bytes(options.cache_bytes), " does not hold one page of ",
                      options.page_tokens, " tokens, which needs ", human_bytes(all)),
                  "raise cache_bytes");
    room.pages.back() = std::min<int64_t>(
        room.pages.back(), std::numeric_limits<int32_t>::max() / options.page_tokens);  // slots are i32
  }
  return room;
}

}  // namespace

std::unique_ptr<Engine> make_ragged_engine(const Graph& graph, const CompileOptions& compile,
                                           const EngineOptions& options, LoadProgress* progress,
                                           std::string& why_not) {
  CacheRoom room;
  RaggedModel model = compile_ragged(graph, compile, [&](const Decoder& decoder) {
    room = room_for(decoder, options);
    RaggedBounds bounds;
    bounds.tokens = options.step_tokens;
    bounds.segments = options.step_sequences;
    bounds.rows = options.step_rows;
    bounds.page_tokens = options.page_tokens;
    bounds.pages = room.pages;
    bounds.states = room.held_states + room.spare_states;
    return bounds;
  });
  if (!model.program) {
    why_not = model.decoder.why_not;
    return nullptr;
  }
  return std::make_unique<RaggedEngine>(std::move(model), options, room, progress);
}

}  // namespace plait

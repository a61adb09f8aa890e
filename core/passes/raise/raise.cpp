// Pass raise: rewrites a decoder's graph, in any exported form, as the canonical ragged program's graph.
//
// Raised are: attention with its cache and masks to plait.PagedAttention over pages of the Store; the tokens'
// positions to an input; projections, embeddings, norms, rotations and activations to canonical ops. All other nodes
// must treat tokens independently; then any mix of requests is one row of tokens. A graph that does not fit is left
// unchanged, with the reason, and runs as written.
#include "core/passes/raise/raiser.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/base/widen.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/raise/raise.h"

namespace plait {
namespace {

/// The page arrays of a layer after writing the new tokens.
struct Written {
  ValueId keys = no_value, values = no_value;
};

class Raiser {
 public:
  Raiser(Graph& graph, PassContext& context) : graph_(graph), context_(context), decoder_(context.decoder) {}

  bool run() {
    if (!decoder_.interface.complete) return refuse(decoder_.interface.why);
    if (!decoder_.interface.encoded.empty())
      return refuse("it attends to what an encoder makes, and decoders that do so run as written");
    drop_unread_caches();
    bool wider = widen(graph_, DType::f32), simpler = spell_out(graph_),
         exact = context_.options.exact_activations && drop_rounding(graph_);
    if (wider || simpler || exact) refold();
    if (keep_what_attention_reads(graph_, context_)) refold();
    find_recurrences();
    if (!find_attention()) return false;
    settle(graph_, context_);
    choices_ = find_length_choices(graph_, context_);
    find_owners();
    make_groups();
    declare_inputs();
    for (size_t layer = 0; layer < matches_.size(); ++layer) rewrite_attention(layer);
    for (size_t k = 0; k < recurrences_.size(); ++k)
      rewrite_recurrent(graph_, recurrences_[k], k, segments_, states_);
    replace_positions(graph_, context_, positions_, mrope_positions_);
    drop_table_slices(graph_);
    cut_outputs();
    rename_sizes();
    refold();
    if (!choose_by_length() || !nothing_left()) return false;
    raise_quantised(graph_, context_.options.exact_activations);
    context_.keep_quantised = false;  // the next fold dequantises what no Linear took
    refold();
    raise_layers(graph_, context_);
    cancel_transposes(graph_);
    refold();
    if (raise_experts(graph_, context_, tokens_)) refold();
    std::string why;
    if (!tokens_are_free(graph_, context_, tokens_, why)) return refuse(why);
    read_sizes();
    list_findings(graph_, decoder_);
    gather_rows(graph_, context_, rows_, tokens_, asked_);
    refold();
    decoder_.recognised = true;
    return true;
  }

 private:
  bool refuse(std::string why) {
    decoder_.obstacles.push_back(why);
    decoder_.why_not = std::move(why);
    return false;
  }

  void drop_unread_caches();
  void find_recurrences();
  bool find_attention();
  bool refuse_unused(const std::vector<bool>& used, const std::string& why);
  void find_owners();
  void make_groups();
  void declare_inputs();
  void declare_ids();
  ValueId declare(std::string name, DType dtype, Dims dims);
  void rewrite_attention(size_t layer);
  ValueId tokens_first(const HeadValue& heads, int64_t count, int64_t size);
  ValueId rotated(ValueId id, const AttentionMatch& match);
  Written write_pages(const AttentionMatch& match, size_t layer);
  ValueId state(std::string key, DType dtype, Dims dims);
  Node& insert(std::string op, std::vector<ValueId> inputs, int outputs, Attributes attributes = {});
  void cut_outputs();
  void rename_sizes();
  void refold();
  bool choose_by_length();
  bool nothing_left();
  void read_sizes();

  Graph& graph_;
  PassContext& context_;
  Decoder& decoder_;
  std::vector<AttentionMatch> matches_;
  std::vector<RecurrentMatch> recurrences_;
  std::string why_no_recurrence_;        ///< of the first mismatch
  std::vector<size_t> owner_;            ///< by layer: the layer whose keys and values it attends to, usually itself
  std::vector<int> group_of_, slot_of_;  ///< by layer: its page group, and its index among the group's page arrays
  std::map<size_t, Written> written_;    ///< by owner
  std::vector<LengthChoice> choices_;
  ValueId mrope_positions_ = no_value;  ///< where rows of an image have positions of their own
  ValueId positions_ = no_value, segments_ = no_value, rows_ = no_value, states_ = no_value, lengths_ = no_value;
  std::vector<ValueId> slots_, tables_;  ///< by group
  SymbolId tokens_ = -1, asked_ = -1;
  std::vector<Node> inserted_;  ///< nodes of the current attention
};

/// Whether two layers' masks are the same values.
bool same_masks(const AttentionMatch& a, const AttentionMatch& b) {
  auto same = [](const AttentionMatch::Mask& x, const AttentionMatch::Mask& y) {
    return x.value == y.value && x.keeps == y.keeps && x.factor == y.factor;
  };
  return a.causal == b.causal && a.window == b.window && a.layer.query_heads == b.layer.query_heads &&
         std::equal(a.masks.begin(), a.masks.end(), b.masks.begin(), b.masks.end(), same);
}

/// Drops caches without readers: exporters give layers that attend to another layer's keys a past of their own. A
/// branch without a past reads no cache inputs: raise adds the cache.
void Raiser::drop_unread_caches() {
  auto readers = consumers(graph_);
  auto& caches = decoder_.interface.caches;
  if (caches.empty()) return;
  std::erase_if(caches, [&](const DecoderInterface::Cache& cache) {
    return cache.idle || (cache.axis >= 0 && readers[static_cast<size_t>(cache.past)].empty());
  });
  if (!caches.empty()) return;
  substitute(graph_, decoder_.interface.past, Dim(0));
  refold();
}

void Raiser::find_recurrences() {
  auto producer = producers(graph_);
  auto consumer = consumers(graph_);
  for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
    std::string why;
    auto match = match_recurrent(graph_, context_, producer, consumer, i, why);
    if (!match && !why.empty() && why_no_recurrence_.empty()) why_no_recurrence_ = why;
    if (!match) continue;
    int layer = static_cast<int>(recurrences_.size());
    if (match->cache >= 0) layer = decoder_.interface.caches[static_cast<size_t>(match->cache)].layer;
    else
      for (size_t k : in_front_of(graph_, producer, *match, recurrences_)) decoder_.states[k].layer = layer;
    decoder_.states.push_back({match->op, layer, match->sizes});
    recurrences_.push_back(std::move(*match));
  }
}

/// Some past inputs are neither keys or values of an attention, nor a recurrence's state.
bool Raiser::refuse_unused(const std::vector<bool>& used, const std::string& why) {
  auto readers = consumers(graph_);
  for (size_t k = 0; k < used.size(); ++k) {
    const auto& cache = decoder_.interface.caches[k];
    if (used[k] || cache.axis >= 0) continue;
    const auto& reader = readers[static_cast<size_t>(cache.past)];
    return refuse(
        cat("input ", quote(graph_.value(cache.past).name), " is a state that ",
            reader.empty() ? "nothing reads" : cat(describe(graph_.nodes[static_cast<size_t>(reader[0])]), " reads"),
            ", and no convolution or recurrence was recognised that carries it",
            why_no_recurrence_.empty() ? "" : "; ", why_no_recurrence_));
  }
  auto recurrences =
      std::count_if(recurrences_.begin(), recurrences_.end(), [](const auto& one) { return one.cache >= 0; });
  std::string counts = cat("found ", matches_.size(), " attention layers for ",
                           used.size() - static_cast<size_t>(recurrences), " cache inputs");
  return refuse(why.empty() ? counts : cat(counts, "; ", why));
}

bool Raiser::find_attention() {
  auto producer = producers(graph_);
  auto consumer = consumers(graph_);
  std::vector<bool> data = data_values(graph_, decoder_.interface);
  std::vector<bool> used(decoder_.interface.caches.size());
  for (const RecurrentMatch& one : recurrences_)
    if (one.cache >= 0) used[static_cast<size_t>(one.cache)] = true;
  std::vector<std::string>& whys = decoder_.obstacles;
  for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
    std::string why;
    auto match = match_attention(graph_, context_, producer, consumer, data, i, why);
    if (!match) {
      if (!why.empty()) whys.push_back(why);
      continue;
    }
    auto known = std::find_if(matches_.begin(), matches_.end(),
                              [&](const AttentionMatch& other) { return same_masks(*match, other); });
    if (known != matches_.end()) {  // layers share masks
      match->layer.window = known->layer.window;
      match->slopes = known->slopes;
    } else if (!probe_masks(graph_, context_, *match, why)) {
      return refuse(cat(describe(graph_.nodes[static_cast<size_t>(i)]), ": ", why));
    }
    if (match->cache_key >= 0) used[static_cast<size_t>(match->cache_key)] = true;
    if (match->cache_value >= 0) used[static_cast<size_t>(match->cache_value)] = true;
    matches_.push_back(std::move(*match));
  }
  bool all_used = std::find(used.begin(), used.end(), false) == used.end();
  bool all_cached = std::all_of(matches_.begin(), matches_.end(),
                                [&](const AttentionMatch& match) { return (match.cache_key >= 0) == !used.empty(); });
  if (!all_used || !all_cached) return refuse_unused(used, whys.empty() ? "" : whys.front());
  if (matches_.empty() && recurrences_.empty()) return refuse(whys.empty() ? "there is no attention" : whys.front());
  for (const auto& match : matches_) decoder_.layers.push_back(match.layer);
  return true;
}

/// Whether two layers attend to the same keys and values, through the same window: they share one cache.
bool same_keys(const AttentionMatch& a, const AttentionMatch& b) {
  auto same = [](const HeadValue& x, const HeadValue& y) { return x.value == y.value && x.order == y.order; };
  return same(a.key, b.key) && same(a.value, b.value) && a.cache_key == b.cache_key &&
         a.cache_value == b.cache_value && a.cosine == b.cosine && a.sine == b.sine &&
         a.interleaved == b.interleaved && a.packed_qkv == b.packed_qkv && a.layer.window == b.layer.window &&
         a.layer.kv_heads == b.layer.kv_heads && a.layer.key_size == b.layer.key_size &&
         a.layer.value_size == b.layer.value_size;
}

/// By layer: the first layer that attends to the same keys and values.
void Raiser::find_owners() {
  for (size_t layer = 0; layer < matches_.size(); ++layer) {
    auto first = std::find_if(matches_.begin(), matches_.begin() + static_cast<std::ptrdiff_t>(layer),
                              [&](const AttentionMatch& one) { return same_keys(one, matches_[layer]); });
    owner_.push_back(static_cast<size_t>(first - matches_.begin()));
  }
}

/// Layers of equal window and page size share a page table. Groups of a pool have equal numbers of layers, the
/// greatest common divisor, so that pages of all groups have one size and one pool serves all windows, as in vLLM's
/// hybrid cache manager.
void Raiser::make_groups() {
  decoder_.cache_dtype = context_.options.dtype == DType::bf16 ? DType::bf16 : DType::f32;
  group_of_.resize(matches_.size());
  slot_of_.resize(matches_.size());
  auto pool_key = [](const AttentionLayer& layer) {
    return std::tuple(layer.kv_heads, layer.key_size, layer.value_size);
  };
  std::map<decltype(pool_key(AttentionLayer{})), std::map<int64_t, std::vector<int>>> pools;  // then by window
  for (int layer = 0; layer < static_cast<int>(matches_.size()); ++layer) {
    if (owner_[static_cast<size_t>(layer)] != static_cast<size_t>(layer)) continue;
    const AttentionLayer& row = matches_[static_cast<size_t>(layer)].layer;
    pools[pool_key(row)][row.window].push_back(layer);
  }
  for (const auto& [key, windows] : pools) {
    size_t share = 0;
    for (const auto& [window, layers] : windows) share = std::gcd(share, layers.size());
    int pool = static_cast<int>(decoder_.pools.size());
    decoder_.pools.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), static_cast<int64_t>(share)});
    for (const auto& [window, layers] : windows)
      for (size_t begin = 0; begin < layers.size(); begin += share) {
        PageGroup group{window, pool, {}};
        for (size_t k = begin; k < begin + share; ++k) {
          group_of_[static_cast<size_t>(layers[k])] = static_cast<int>(decoder_.groups.size());
          slot_of_[static_cast<size_t>(layers[k])] = static_cast<int>(k - begin);
          group.layers.push_back(layers[k]);
        }
        decoder_.groups.push_back(std::move(group));
      }
  }
  for (size_t layer = 0; layer < matches_.size(); ++layer) group_of_[layer] = group_of_[owner_[layer]];
}

ValueId Raiser::declare(std::string name, DType dtype, Dims dims) {
  if (ValueId taken = graph_.find(name); taken != no_value) graph_.value(taken).name += ".file";
  ValueId id = graph_.add_value(std::move(name), {dtype, std::move(dims)});
  graph_.inputs.push_back(id);
  return id;
}

void Raiser::declare_inputs() {
  tokens_ = graph_.symbols.fresh("t");
  asked_ = graph_.symbols.fresh("r");
  Dim t = Dim::symbol(tokens_), n = graph_.symbol("n"), m = graph_.symbol("m");
  positions_ = declare("positions", DType::i32, {1, t});
  if (decoder_.interface.takes_places())
    mrope_positions_ =
        declare(std::string(mrope_positions_input), DType::i32, {1, t, decoder_.interface.position_rows});
  segments_ = declare("segments", DType::i32, {1, t});
  rows_ = declare("rows", DType::i32, {1, Dim::symbol(asked_)});
  declare_ids();
  if (!choices_.empty()) lengths_ = declare("lengths", DType::i32, {1, t});
  for (size_t group = 0; group < decoder_.groups.size(); ++group) {
    slots_.push_back(declare(cat("slots.", group), DType::i32, {1, t}));
    tables_.push_back(declare(cat("pages.", group), DType::i32, {n, m}));
  }
  if (!recurrences_.empty()) states_ = declare("states", DType::i32, {n, 2});
}

/// Steps pass ids as i64; a file may read them as i32.
void Raiser::declare_ids() {
  ValueId& ids = decoder_.interface.ids;
  Type type = graph_.value(ids).type;
  if (type.dtype == DType::i64) return;
  ValueId wide = declare(cat(graph_.value(ids).name, ".i64"), DType::i64, *type.dims);
  Node cast;
  cast.op = "Cast";
  cast.attributes.set("to", static_cast<int64_t>(type.dtype));
  cast.inputs = {wide};
  cast.outputs = {graph_.add_value({}, type)};
  graph_.replace_uses(ids, cast.outputs[0]);
  graph_.nodes.insert(graph_.nodes.begin(), std::move(cast));
  std::swap(graph_.value(ids).name, graph_.value(wide).name);
  std::replace(graph_.inputs.begin(), graph_.inputs.end(), ids, wide);
  graph_.inputs.pop_back();
  ids = wide;
}

Node& Raiser::insert(std::string op, std::vector<ValueId> inputs, int outputs, Attributes attributes) {
  Node node;
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  for (int i = 0; i < outputs; ++i) node.outputs.push_back(graph_.add_value({}));
  node.attributes = std::move(attributes);
  inserted_.push_back(std::move(node));
  return inserted_.back();
}

ValueId Raiser::state(std::string key, DType dtype, Dims dims) {
  Attributes attributes;
  attributes.set("key", std::move(key));
  ValueId id = insert("plait.State", {}, 1, std::move(attributes)).outputs[0];
  graph_.value(id).type = {dtype, std::move(dims)};
  return id;
}

/// [b, t, heads, size].
ValueId Raiser::tokens_first(const HeadValue& heads, int64_t count, int64_t size) {
  const auto& dims = graph_.value(heads.value).type.dims;
  size_t rank = dims ? dims->size() : 0;
  ValueId id = heads.value;
  bool plain = rank == 4 && (heads.order == "hsd" || (count == 1 && heads.order == "shd" && (*dims)[1] == Dim(1)));
  std::vector<int64_t> sizes{1}, perm{0};
  for (char axis : heads.order) sizes.push_back(axis == 'h' ? count : axis == 's' ? -1 : size);
  if (!plain) id = insert("Reshape", {id, graph_.add_constant(Tensor::of_ints(sizes))}, 1).outputs[0];
  if (!plain && heads.order == "shd") return id;
  for (char axis : {'s', 'h', 'd'}) perm.push_back(static_cast<int64_t>(heads.order.find(axis)) + 1);
  if (plain) perm = {0, 2, 1, 3};
  Attributes attributes;
  attributes.set("perm", std::move(perm));
  return insert("Transpose", {id}, 1, std::move(attributes)).outputs[0];
}

/// Heads [b, t, heads, size] rotated by the op's tables.
ValueId Raiser::rotated(ValueId id, const AttentionMatch& match) {
  if (match.cosine == no_value) return id;
  ValueId cosine = insert("Gather", {match.cosine, positions_}, 1).outputs[0];
  ValueId sine = insert("Gather", {match.sine, positions_}, 1).outputs[0];
  Attributes attributes;
  attributes.set("interleaved", int64_t{match.interleaved});
  return insert("plait.RoPE", {id, cosine, sine}, 1, std::move(attributes)).outputs[0];
}

Written Raiser::write_pages(const AttentionMatch& match, size_t index) {
  const AttentionLayer& layer = match.layer;
  auto group = static_cast<size_t>(group_of_[index]);
  int pool = decoder_.groups[group].pool;
  const auto key_of = [&](store_keys::CacheHalf half) {
    return store_keys::cache_pages(half, pool, slot_of_[index]);
  };
  DType cache = decoder_.cache_dtype;
  Dim pages = graph_.symbol(cat("p.", pool)), slots = graph_.symbol("c");
  ValueId key = rotated(tokens_first(match.key, layer.kv_heads, layer.key_size), match);
  ValueId value = tokens_first(match.value, layer.kv_heads, layer.value_size);
  ValueId keys = state(key_of(store_keys::CacheHalf::keys), cache, {pages, layer.kv_heads, layer.key_size, slots});
  ValueId values =
      state(key_of(store_keys::CacheHalf::values), cache, {pages, layer.kv_heads, slots, layer.value_size});
  std::vector<ValueId> out = insert("plait.KvWrite", {keys, values, key, value, slots_[group]}, 2).outputs;
  return {out[0], out[1]};
}

void Raiser::rewrite_attention(size_t index) {
  AttentionMatch match = matches_[index];
  const AttentionLayer& layer = match.layer;
  auto group = static_cast<size_t>(group_of_[index]);
  inserted_.clear();
  if (match.packed_qkv) {
    Attributes last;
    last.set("axis", int64_t{2});
    int64_t kv = layer.kv_heads * layer.key_size;
    std::vector<int64_t> parts{layer.query_heads * layer.key_size, kv, kv};
    std::vector<ValueId> split =
        insert("Split", {match.query.value, graph_.add_constant(Tensor::of_ints(parts))}, 3, std::move(last)).outputs;
    match.query.value = split[0], match.key.value = split[1], match.value.value = split[2];
  }
  ValueId query = rotated(tokens_first(match.query, layer.query_heads, layer.key_size), match);
  if (owner_[index] == index) written_[index] = write_pages(match, index);
  const Written& pages = written_.at(owner_[index]);
  Attributes attributes;
  attributes.set("scale", layer.scale);
  if (layer.window) attributes.set("window", layer.window);
  if (layer.softcap != 0) attributes.set("softcap", layer.softcap);
  std::vector<ValueId> operands{query, pages.keys, pages.values, positions_, segments_, tables_[group]};
  if (match.sinks != no_value) {
    const auto& dims = graph_.value(match.sinks).type.dims;
    ValueId heads = graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{layer.query_heads}));
    if (!dims || dims->size() != 1) match.sinks = insert("Reshape", {match.sinks, heads}, 1).outputs[0];
  }
  if (match.sinks != no_value || !match.slopes.empty()) operands.push_back(match.sinks);
  if (!match.slopes.empty())
    operands.push_back(graph_.add_constant(
        Tensor::of<float>(DType::f32, Shape{static_cast<int64_t>(match.slopes.size())}, match.slopes)));
  ValueId out = insert("plait.PagedAttention", std::move(operands), 1, std::move(attributes)).outputs[0];
  const Dims shape = *graph_.value(match.output).type.dims;
  if (match.packed) {
    ValueId sizes =
        graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{0, 0, layer.query_heads * layer.value_size}));
    out = insert("Reshape", {out, sizes}, 1).outputs[0];
  } else {
    Attributes swap;
    swap.set("perm", std::vector<int64_t>{0, 2, 1, 3});
    out = insert("Transpose", {out}, 1, std::move(swap)).outputs[0];
    if (shape.size() != 4) {
      Node& sizes = insert("plait.Sizes", {}, 1);
      make_sizes(sizes, shape, false, graph_.symbols);
      out = insert("Reshape", {out, sizes.outputs[0]}, 1).outputs[0];
    }
  }
  // Inserts the new nodes before the one that made the output: their operands come before it.
  auto maker = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
    return std::find(node.outputs.begin(), node.outputs.end(), match.output) != node.outputs.end();
  });
  for (Node& node : inserted_) node.name = maker->name;
  graph_.replace_uses(match.output, out);
  graph_.nodes.insert(maker, std::make_move_iterator(inserted_.begin()), std::make_move_iterator(inserted_.end()));
}

void Raiser::cut_outputs() {
  graph_.outputs = {graph_.outputs[static_cast<size_t>(decoder_.interface.logits)]};
  graph_.remove_dead();
}

/// On ragged rows the batch is one row, the sequence is its tokens, and there is no past.
void Raiser::rename_sizes() {
  substitute(graph_, decoder_.interface.batch, Dim(1));
  substitute(graph_, decoder_.interface.sequence, Dim::symbol(tokens_));
}

void Raiser::refold() {
  context_.knowledge = {};
  fold(graph_, context_);
}

/// Turns choices by sequence length into choices by token.
bool Raiser::choose_by_length() {
  for (const LengthChoice& choice : choices_) {
    auto reader = [&] {
      return std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
        return std::find(node.inputs.begin(), node.inputs.end(), choice.longer) != node.inputs.end();
      });
    };
    if (reader() == graph_.nodes.end()) continue;  // e.g. of a mask
    choose_by_token(graph_, context_, choice, lengths_, positions_, tokens_);
    refold();
    if (auto left = reader(); left != graph_.nodes.end())
      return refuse(
          cat(describe(*left), " chooses for all tokens at once, by whether they are more than ", choice.limit));
    decoder_.length_limits.push_back(choice.limit);
  }
  return true;
}

/// The old inputs must have no readers: masks, position ids, caches and the past length.
bool Raiser::nothing_left() {
  const DecoderInterface& interface = decoder_.interface;
  std::vector<bool> read(static_cast<size_t>(graph_.value_count()));
  for (const Node& node : graph_.nodes)
    for (ValueId id : node.inputs)
      if (id != no_value) read[static_cast<size_t>(id)] = true;
  std::vector<ValueId> kept;
  for (ValueId id : graph_.inputs) {
    bool ours = id == interface.ids || id == interface.given || id == interface.given_at ||
                graph_.value(id).name == "rows" || id == positions_ || id == mrope_positions_ || id == segments_ ||
                id == states_ || (id == lengths_ && !decoder_.length_limits.empty()) ||
                std::find(slots_.begin(), slots_.end(), id) != slots_.end() ||
                std::find(tables_.begin(), tables_.end(), id) != tables_.end();
    if (ours) kept.push_back(id);
    else if (read[static_cast<size_t>(id)]) {
      for (const Node& node : graph_.nodes)
        if (std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end())
          return refuse(cat(describe(node), " still reads input ", quote(graph_.value(id).name)));
    }
  }
  for (const Node& node : graph_.nodes)
    for (ValueId id : node.outputs) {
      if (id == no_value || !graph_.value(id).type.dims) continue;
      for (const Dim& dim : *graph_.value(id).type.dims)
        for (SymbolId symbol : dim.symbols())
          if (symbol == interface.past)
            return refuse(cat(describe(node), " still depends on the length of the past"));
    }
  for (const Node& node : graph_.nodes)
    if (node.op == "plait.Sizes")
      for (const Dim& dim : sizes_of(node, graph_.symbols))
        for (SymbolId symbol : dim.symbols())
          if (symbol == interface.past) return refuse("a size still depends on the length of the past");
  graph_.inputs = std::move(kept);
  return true;
}

/// Vocabulary, hidden size, and the length of position tables.
void Raiser::read_sizes() {
  const Type& logits = graph_.value(graph_.outputs[0]).type;
  if (logits.dims && logits.dims->back().is_constant()) decoder_.vocabulary = logits.dims->back().constant();
  auto producer = producers(graph_);
  // The hidden state is the input of the last Linear; a soft cap or a scale may follow.
  ValueId id = graph_.outputs[0];
  for (int steps = 0; steps < 8 && id != no_value; ++steps) {
    int32_t maker = producer[static_cast<size_t>(id)];
    if (maker < 0) break;
    const Node& node = graph_.nodes[static_cast<size_t>(maker)];
    if (node.op == "plait.Linear") {
      ValueId hidden = node.inputs[0];  // before a Reshape that only drops the row axis
      for (int32_t from = producer[static_cast<size_t>(hidden)];
           from >= 0 && graph_.nodes[static_cast<size_t>(from)].op == "Reshape";
           from = producer[static_cast<size_t>(hidden)])
        hidden = graph_.nodes[static_cast<size_t>(from)].inputs[0];
      const auto& dims = graph_.value(hidden).type.dims;
      decoder_.hidden = dims && dims->back().is_constant() ? dims->back().constant() : 0;
      decoder_.has_hidden = true;
      graph_.outputs.push_back(hidden);
      break;
    }
    id = node.inputs.empty() ? no_value : node.inputs[0];
  }
  for (const auto& cache : decoder_.interface.caches)  // capacity of the file's own buffers
    if (cache.length && !cache.ring)
      decoder_.context = decoder_.context ? std::min(decoder_.context, cache.length) : cache.length;
  std::vector<bool> of_positions(static_cast<size_t>(graph_.value_count()));
  for (ValueId id : {positions_, mrope_positions_})
    if (id != no_value) of_positions[static_cast<size_t>(id)] = true;
  for (const Node& node : graph_.nodes) {
    bool follows = std::any_of(node.inputs.begin(), node.inputs.end(),
                               [&](ValueId in) { return in != no_value && of_positions[static_cast<size_t>(in)]; });
    bool cheap = node.op == "Cast" || node.op == "Reshape" || node.op == "Unsqueeze" || node.op == "Squeeze" ||
                 node.op == "Transpose";
    const bool row = node.op == "Gather" && of_positions[static_cast<size_t>(node.inputs[0])];  // of M-RoPE's
    if (follows && (cheap || row)) of_positions[static_cast<size_t>(node.outputs[0])] = true;
    bool table = node.op == "plait.Embedding" || node.op == "Gather";
    if (!table || !of_positions[static_cast<size_t>(node.inputs[1])]) continue;
    const auto& dims = graph_.value(node.inputs[0]).type.dims;
    if (!dims || !(*dims)[0].is_constant()) continue;
    int64_t length = (*dims)[0].constant();
    decoder_.context = decoder_.context ? std::min(decoder_.context, length) : length;
  }
}

}  // namespace

std::vector<bool> data_values(const Graph& graph, const DecoderInterface& interface) {
  std::vector<bool> data(static_cast<size_t>(graph.value_count()));
  if (interface.ids != no_value) data[static_cast<size_t>(interface.ids)] = true;
  for (ValueId id : {interface.given, interface.given_at})
    if (id != no_value) data[static_cast<size_t>(id)] = true;
  for (const auto& cache : interface.caches) data[static_cast<size_t>(cache.past)] = true;
  for (const Node& node : graph.nodes) {
    if (node.op == "Shape" || node.op == "Size") continue;
    bool any = is_state(node) || std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
                 return id != no_value && data[static_cast<size_t>(id)];
               });
    for (ValueId id : node.outputs)
      if (id != no_value && any) data[static_cast<size_t>(id)] = true;
  }
  return data;
}

void raise(Graph& graph, PassContext& context) {
  Graph whole = graph;  // shares all bytes; a graph that does not fit must stay unchanged
  Knowledge knowledge = context.knowledge;
  Decoder before = context.decoder;
  bool fits = false;
  try {
    fits = Raiser(graph, context).run();
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    context.decoder.why_not = error.message();
    context.decoder.obstacles.push_back(error.message());
  }
  if (fits) return;
  graph = std::move(whole);
  context.knowledge = std::move(knowledge);
  before.why_not = std::move(context.decoder.why_not);
  before.obstacles = std::move(context.decoder.obstacles);
  context.decoder = std::move(before);
}

}  // namespace plait

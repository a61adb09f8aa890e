// Pass overlap: starts collectives as early as their operands allow, and moves readers of their results as late as
// possible, so that ranks compute meanwhile (as PyTorch's DDP, Li et al. 2020, section 3.2.3, and FSDP's prefetching,
// Zhao et al. 2023, section 3.3). Only the order of nodes changes, so results keep their bits; collectives that may
// run asynchronously are marked, and pass `plan` finds where they are awaited.
//
// - Early: a collective whose result is read soon starts once its operand, its turn and memory are available. For
//   weights, which are always available, memory limits how far ahead of their readers.
// - Late: where little work depends on a result (a gradient is added to a sum), that is moved down until the memory
//   is needed.
//
// Pending collectives keep memory in use: at most half of the cap for early ones and half for late ones. A collective
// that needs more is synchronous. The order depends only on the graph and the bounds of its symbols, so all ranks
// start their collectives in one order.
#include <algorithm>
#include <deque>

#include "core/passes/lower/lower.h"

namespace plait {
namespace {

/// Dependent work is little if it reads and writes at most so many times the collective's bytes: splitting a bucket,
/// adding to a sum, a norm.
constexpr int64_t little_times = 16;
/// Always little: a training step reads and writes gigabytes.
constexpr int64_t little_bytes = 64 << 10;

class Overlapping {
 public:
  Overlapping(Graph& graph, const OpSet& ops, int64_t cap)
      : graph_(graph), ops_(ops), cap_(cap / 2), producer_(producers(graph)), state_(graph.nodes.size()) {
    for (SymbolId id = 0; id < graph.symbols.size(); ++id) bounds_.push_back(graph.symbols[id].bound);
    find_order();
    readers_.resize(graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      for (size_t before : before_[i]) readers_[before].push_back(i);
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (communicates(graph.nodes[i]) && measure(i)) await_makers(i);
  }

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (is_state(graph_.nodes[i])) place(i);  // available before the run
    begin_early();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (state_[i].placed || state_[i].on_demand) continue;
      if (waits(i)) {
        state_[i].put_off = true;
        put_off_.push_back(i);
        continue;
      }
      place(i);
      begin_early();
    }
    while (await_late()) {
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!state_[i].placed) place(i);  // values that only the host reads
    std::vector<Node> nodes;
    for (size_t i : order_) nodes.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(nodes);
  }

 private:
  struct State {
    bool placed = false;
    bool put_off = false;    ///< moved after its original place
    bool on_demand = false;  ///< placed when a reader is
    bool under_way = false;
    std::vector<size_t> awaited_by;  ///< collectives that wait for this node
    // For collectives:
    bool late = false;           ///< little work depends on its result
    int64_t bytes = -1;          ///< kept while it is pending; -1: unknown
    std::vector<size_t> made;    ///< for late ones: the dependent nodes, ascending
    std::vector<size_t> layout;  ///< the nodes that lay out its operand, and itself
    size_t missing = 0;          ///< predecessors of these without a place
    size_t wanted = 0;           ///< priority: its first reader, or itself if it is late
  };
  using Waiting = std::pair<size_t, size_t>;  ///< priority and index of a collective

  static bool communicates(const Node& node) {
    const std::optional<CollectiveKind> kind = collective_kind(node.op);
    return kind && *kind != CollectiveKind::shard;
  }

  /// The order that must hold: producers before readers; for in-place writes, also all accesses of the same bytes
  /// before and after.
  void find_order() {
    const size_t count = graph_.nodes.size();
    before_.resize(count);
    root_.resize(static_cast<size_t>(graph_.value_count()));
    for (size_t id = 0; id < root_.size(); ++id) root_[id] = static_cast<ValueId>(id);
    std::map<ValueId, size_t> writer;
    std::map<ValueId, std::vector<size_t>> since;  // accesses of a root's bytes since its last write
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.nodes[i];
      const OpSchema* schema = ops_.find(node.op);
      const size_t updates = schema ? static_cast<size_t>(schema->updates) : 0;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId id = node.inputs[k];
        if (id == no_value) continue;
        const ValueId root = root_[static_cast<size_t>(id)];
        if (const int32_t maker = producer_[static_cast<size_t>(id)]; maker >= 0)
          before_[i].push_back(static_cast<size_t>(maker));
        if (auto found = writer.find(root); found != writer.end()) before_[i].push_back(found->second);
        if (k < updates) {
          std::vector<size_t>& touched = since[root];
          before_[i].insert(before_[i].end(), touched.begin(), touched.end());
          touched.clear();
          writer[root] = i;
        } else {
          since[root].push_back(i);
        }
        if (k < node.outputs.size() && node.outputs[k] != no_value && (k < updates || (k == 0 && is_view(node))))
          root_[static_cast<size_t>(node.outputs[k])] = root;
      }
      std::erase(before_[i], i);
      std::sort(before_[i].begin(), before_[i].end());
      before_[i].erase(std::unique(before_[i].begin(), before_[i].end()), before_[i].end());
    }
  }

  /// Bytes of a value in the arena; -1 if unknown before the run.
  int64_t bytes_of(ValueId id, bool of_store) const {
    if (id == no_value) return 0;
    const ValueId root = root_[static_cast<size_t>(id)];
    const int32_t maker = producer_[static_cast<size_t>(root)];
    if (!of_store && (maker < 0 || is_state(graph_.nodes[static_cast<size_t>(maker)]))) return 0;
    const Type& type = graph_.value(id).type;
    if (!type.dims) return -1;
    std::vector<int64_t> sizes;
    for (const Dim& dim : *type.dims) {
      for (SymbolId symbol : dim.symbols())
        if (bounds_[static_cast<size_t>(symbol)] <= 0) return -1;
      sizes.push_back(dim.evaluate(bounds_));
    }
    const int bits = dtype_bits(type.dtype);
    return packed_bytes(checked_elements(sizes, bits), bits);
  }
  int64_t sum_of(const std::vector<ValueId>& ids, bool of_store) const {
    int64_t sum = 0;
    for (ValueId id : ids) {
      const int64_t bytes = bytes_of(id, of_store);
      if (bytes < 0) return -1;
      sum += bytes;
    }
    return sum;
  }
  bool is_view(const Node& node) const {
    const OpSchema* schema = ops_.find(node.op);
    return schema && schema->view;
  }
  /// Bytes that the node reads and writes; -1 if unknown.
  int64_t work_of(const Node& node) const {
    if (is_view(node) || is_state(node)) return 0;
    const int64_t reads = sum_of(node.inputs, true), writes = sum_of(node.outputs, true);
    return reads < 0 || writes < 0 ? -1 : reads + writes;
  }

  /// Nodes that depend on a collective's result, ascending, if that is little work.
  std::optional<std::vector<size_t>> little_of(size_t call, int64_t bytes) const {
    int64_t extra = little_times * bytes + little_bytes;
    std::set<size_t> seen;
    std::vector<size_t> waiting{call};
    while (!waiting.empty()) {
      const size_t now = waiting.back();
      waiting.pop_back();
      for (size_t reader : readers_[now]) {
        if (!seen.insert(reader).second) continue;
        const int64_t work = work_of(graph_.nodes[reader]);
        if (work < 0 || (extra -= work) < 0) return std::nullopt;
        waiting.push_back(reader);
      }
    }
    return std::vector<size_t>(seen.begin(), seen.end());
  }

  /// Collects the properties of a collective; false if its sizes are unknown.
  bool measure(size_t i) {
    const Node& node = graph_.nodes[i];
    State& state = state_[i];
    const int64_t in = sum_of(node.inputs, true), out = sum_of(node.outputs, true);
    if (in < 0 || out < 0) return false;
    const bool contiguous = leads(*graph_.value(node.inputs[0]).type.dims, node.attributes.integer("dim", 0));
    const CollectiveWorkspace workspace = workspace_of(*collective_kind(node.op), contiguous);
    state.bytes = sum_of(node.inputs, false) + out + workspace.inputs * in + workspace.outputs * out;
    const auto made = little_of(i, in + out);
    state.late = made.has_value();
    state.wanted = i;
    if (!made) {
      want(i, sum_of(node.inputs, false) <= out);
      return true;
    }
    state.made = *made;
    for (size_t reader : *made)  // and what is added to it waits too
      for (ValueId id : graph_.nodes[reader].inputs) {
        const int32_t maker = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
        if (maker < 0 || static_cast<size_t>(maker) == i) continue;
        if (!std::binary_search(made->begin(), made->end(), static_cast<size_t>(maker)))
          state.bytes += bytes_of(id, false);
      }
    return true;
  }

  /// Gives an early collective the priority of its first reader, after the nodes that split its result. Places it
  /// then, unless its operand is larger than its result.
  void want(size_t call, bool on_demand) {
    size_t first = graph_.nodes.size();
    std::set<size_t> seen{call};
    std::vector<size_t> waiting{call};
    while (!waiting.empty()) {
      const size_t now = waiting.back();
      waiting.pop_back();
      for (size_t reader : readers_[now]) {
        const Node& node = graph_.nodes[reader];
        if (!is_view(node) && node.op != "Split") first = std::min(first, reader);
        else if (seen.insert(reader).second) waiting.push_back(reader);
      }
    }
    state_[call].wanted = first;
    if (!on_demand) return;
    for (size_t node : seen) state_[node].on_demand = true;
    const std::vector<size_t> layout = layout_of(call);
    for (auto node = layout.rbegin() + 1; node != layout.rend(); ++node)  // the last is the collective itself
      state_[*node].on_demand = std::all_of(readers_[*node].begin(), readers_[*node].end(),
                                            [&](size_t reader) { return state_[reader].on_demand; });
  }

  /// The nodes that lay out a collective's operand, ascending, and the collective.
  std::vector<size_t> layout_of(size_t call) const {
    std::set<size_t> out{call};
    std::vector<size_t> waiting{call};
    while (!waiting.empty()) {
      const size_t now = waiting.back();
      waiting.pop_back();
      for (size_t maker : before_[now]) {
        const Node& node = graph_.nodes[maker];
        if ((is_view(node) || node.op == "Concat" || is_state(node)) && out.insert(maker).second)
          waiting.push_back(maker);
      }
    }
    return {out.begin(), out.end()};
  }

  /// Counts the unplaced predecessors of a collective's layout.
  void await_makers(size_t call) {
    State& state = state_[call];
    state.layout = layout_of(call);
    std::set<size_t> makers;
    for (size_t i : state.layout)
      for (size_t maker : before_[i])
        if (!std::binary_search(state.layout.begin(), state.layout.end(), maker)) makers.insert(maker);
    state.missing = makers.size();
    for (size_t maker : makers) state_[maker].awaited_by.push_back(call);
    if (makers.empty()) ready_[state.late].emplace(state.wanted, call);
  }

  /// Whether a node needs a late node, or a result that may stay pending.
  bool waits(size_t i) const {
    return std::any_of(before_[i].begin(), before_[i].end(), [&](size_t before) {
      const State& state = state_[before];
      return state.placed ? state.under_way && state.late : !state.on_demand || waits(before);
    });
  }

  /// Places a node after its predecessors, none of which waits.
  void place(size_t i) {
    for (size_t before : before_[i]) {
      if (!state_[before].placed) place(before);
      if (state_[before].under_way) end(before);
    }
    if (state_[i].bytes >= 0) {
      const bool fit = make_space(i);
      if (state_[i].placed) return;  // it depended on a collective that has ended
      if (fit) begin(i);
      ready_[state_[i].late].erase({state_[i].wanted, i});
    }
    state_[i].placed = true;
    order_.push_back(i);
    for (size_t call : state_[i].awaited_by)
      if (--state_[call].missing == 0 && !state_[call].placed)
        ready_[state_[call].late].emplace(state_[call].wanted, call);
  }

  bool fits(size_t i) const { return kept_[state_[i].late] + state_[i].bytes <= cap_; }
  bool make_space(size_t i) {
    if (state_[i].bytes > cap_) return false;
    while (state_[i].late && !fits(i)) await_late();
    return fits(i);
  }
  void begin(size_t i) {
    graph_.nodes[i].attributes.set("async", int64_t{1});
    state_[i].under_way = true;
    kept_[state_[i].late] += state_[i].bytes;
    if (state_[i].late) late_.push_back(i);
  }
  void end(size_t i) {
    state_[i].under_way = false;
    kept_[state_[i].late] -= state_[i].bytes;
  }

  /// Waits for the first late collective, and places the nodes that depended only on it; false if there is none.
  bool await_late() {
    if (late_.empty()) return false;
    const size_t first = late_.front();
    late_.pop_front();
    end(first);
    for (size_t i : state_[first].made)
      if (!state_[i].placed && !waits(i)) place(i);
    while (true) {
      std::erase_if(put_off_, [&](size_t i) { return state_[i].placed; });
      auto free = std::find_if(put_off_.begin(), put_off_.end(), [&](size_t i) { return !waits(i); });
      if (free == put_off_.end()) return true;
      place(*free);
    }
  }

  /// Starts collectives whose operands are available: early ones as far as memory allows, by priority.
  void begin_early() {
    for (const bool late : {true, false}) {
      const std::set<Waiting>& ready = ready_[late];
      for (auto entry = ready.begin(); entry != ready.end();) {
        const auto [wanted, call] = *entry;
        ++entry;
        if (state_[call].bytes > cap_) continue;
        if (!late && !fits(call)) break;
        const std::vector<size_t>& layout = state_[call].layout;
        if (std::any_of(layout.begin(), layout.end(), [&](size_t i) { return !state_[i].placed && is_put_off(i); }))
          continue;
        for (size_t i : layout)
          if (!state_[i].placed) place(i);
        entry = ready.upper_bound({wanted, call});  // the set may have changed
      }
    }
  }
  bool is_put_off(size_t i) const {
    return state_[i].put_off || std::any_of(before_[i].begin(), before_[i].end(), [&](size_t before) {
             return state_[before].under_way && state_[before].late;
           });
  }

  Graph& graph_;
  const OpSet& ops_;
  const int64_t cap_;  ///< bytes of early, and of late ones
  const std::vector<int32_t> producer_;
  std::vector<int64_t> bounds_;
  std::vector<ValueId> root_;                 ///< by value: the value whose bytes it has
  std::vector<std::vector<size_t>> before_;   ///< by node: its predecessors
  std::vector<std::vector<size_t>> readers_;  ///< by node: its successors
  std::set<Waiting> ready_[2];     ///< collectives without a place whose operands are available, early and late
  std::vector<State> state_;    ///< by node
  std::vector<size_t> order_;   ///< as found so far
  std::deque<size_t> put_off_;  ///< ascending, after late collectives
  std::deque<size_t> late_;     ///< pending collectives, in start order
  int64_t kept_[2] = {0, 0};    ///< bytes, of what is early and late
};

}  // namespace

void overlap(Graph& graph, PassContext& context) {
  if (const int64_t cap = context.training->overlap_bytes; cap > 0)
    Overlapping(graph, context.options.ops, cap).run();
}

}  // namespace plait

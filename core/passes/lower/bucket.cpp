// Pass bucket: joins small collectives of one kind into one, up to a cap on its bytes, since latency dominates their time
// (Li et al. 2020, section 3.2.2). Large ones stay single, since a bucket copies its members.
//
// Members of a reduction or scatter are concatenated along the dim after the parts: [parts, elements of a part].
#include <algorithm>
#include <map>

#include "core/base/text.h"
#include "core/graph/graph_builder.h"
#include "core/passes/lower/lower.h"

namespace plait {
namespace {

/// A collective that may join a bucket.
struct Piece {
  std::string key;    ///< equal for collectives that may share a bucket
  int64_t bytes = 0;  ///< of all parts
  int64_t parts = 1;  ///< of its operand's layout: those that a scatter makes
};

struct Bucket {
  std::vector<size_t> members;  ///< nodes, in order
  int64_t bytes = 0;
};

class Bucketing {
 public:
  Bucketing(Graph& graph, const OpSet& ops, int64_t cap)
      : graph_(graph), builder_(ops, graph, knowledge_, "bucket"), cap_(cap), producer_(producers(graph)) {}

  void run() {
    const size_t count = graph_.nodes.size();
    bucket_of_.assign(count, none);
    std::map<std::string, size_t> open;
    for (size_t i = 0; i < count; ++i) {
      const std::optional<Piece> piece = piece_of(graph_.nodes[i]);
      if (!piece) continue;
      auto [found, fresh] = open.try_emplace(piece->key, buckets_.size());
      if (!fresh && (buckets_[found->second].bytes + piece->bytes > cap_ || needs(i, found->second))) {
        found->second = buckets_.size();
        fresh = true;
      }
      if (fresh) buckets_.emplace_back();
      Bucket& bucket = buckets_[found->second];
      bucket.members.push_back(i);
      bucket.bytes += piece->bytes;
      bucket_of_[i] = found->second;
    }
    // New nodes are inserted at the first member; `sort` moves them after the others.
    std::vector<size_t> ends(buckets_.size());  // of each bucket's new nodes, which follow all others
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].members.size() > 1) join(buckets_[b]);
      ends[b] = graph_.nodes.size();
    }
    std::vector<Node> nodes;
    for (size_t i = 0; i < count; ++i) {
      const size_t b = bucket_of_[i];
      if (b == none || buckets_[b].members.size() == 1) nodes.push_back(std::move(graph_.nodes[i]));
      else if (buckets_[b].members[0] == i)
        for (size_t k = b ? ends[b - 1] : count; k < ends[b]; ++k) nodes.push_back(std::move(graph_.nodes[k]));
    }
    graph_.nodes = std::move(nodes);
    graph_.sort();
  }

 private:
  static constexpr size_t none = static_cast<size_t>(-1);

  /// Collectives of known sizes whose parts are contiguous.
  std::optional<Piece> piece_of(const Node& node) const {
    const std::optional<CollectiveKind> kind = collective_kind(node.op);
    const bool reduces = kind == CollectiveKind::all_reduce, scatters = kind == CollectiveKind::reduce_scatter;
    if (!reduces && !scatters && kind != CollectiveKind::all_gather) return std::nullopt;
    const Type& type = graph_.value(node.inputs[0]).type;
    if (!type.dims ||
        !std::all_of(type.dims->begin(), type.dims->end(), [](const Dim& d) { return d.is_constant(); }))
      return std::nullopt;
    const int64_t dim = node.attributes.integer("dim", 0), parts = node.attributes.integer("parts", 1);
    int64_t elements = 1;
    if (!leads(*type.dims, dim)) return std::nullopt;
    for (const Dim& size : *type.dims) elements *= size.constant();
    Piece out;
    out.key = cat(node.op, " ", node.attributes.string("axes", ""), " ", parts, " ",
                  node.attributes.string("reduction", "sum"), " ", dtype_name(type.dtype));
    out.bytes = packed_bytes(elements, dtype_bits(type.dtype)) * (reduces || scatters ? 1 : parts);
    out.parts = scatters ? parts : 1;
    if (2 * out.bytes > cap_ || elements == 0) return std::nullopt;
    return out;
  }

  /// Whether a node depends on a bucket, directly or through others; a bucket's members are computed together.
  bool needs(size_t node, size_t bucket) const {
    std::vector<bool> seen(graph_.nodes.size());
    std::vector<size_t> waiting{node};
    seen[node] = true;
    while (!waiting.empty()) {
      const size_t now = waiting.back();
      waiting.pop_back();
      if (bucket_of_[now] == bucket) return true;
      auto visit = [&](size_t other) {
        if (!seen[other]) waiting.push_back(other);
        seen[other] = true;
      };
      if (bucket_of_[now] != none)
        for (size_t member : buckets_[bucket_of_[now]].members) visit(member);
      for (ValueId id : graph_.nodes[now].inputs)
        if (id != no_value && producer_[static_cast<size_t>(id)] >= 0)
          visit(static_cast<size_t>(producer_[static_cast<size_t>(id)]));
    }
    return false;
  }

  void join(const Bucket& bucket) {
    const int64_t parts = piece_of(graph_.nodes[bucket.members[0]])->parts;
    std::vector<ValueId> pieces;
    std::vector<int64_t> sizes;  // of each in the result, in elements of a part
    for (size_t member : bucket.members) {
      const ValueId x = graph_.nodes[member].inputs[0];
      int64_t elements = 1;
      for (const Dim& dim : builder_.dims(x)) elements *= dim.constant();
      sizes.push_back(elements / parts);
      pieces.push_back(builder_.reshaped(x, {Dim(parts), Dim(elements / parts)}));
    }
    Attributes last;
    last.set("axis", int64_t{1});
    const Node first = graph_.nodes[bucket.members[0]];
    Attributes attributes = first.attributes;
    if (attributes.has("dim")) attributes.set("dim", int64_t{0});
    const ValueId joined = builder_.add(first.op, {builder_.add("Concat", pieces, last)}, std::move(attributes));
    const std::vector<ValueId> results =
        builder_.add_all("Split", {joined, builder_.integers(sizes)}, std::vector<bool>(sizes.size(), true), last);
    for (size_t k = 0; k < results.size(); ++k) {
      const ValueId old = graph_.nodes[bucket.members[k]].outputs[0];
      graph_.replace_uses(old, builder_.reshaped(results[k], builder_.dims(old)));
    }
  }

  Graph& graph_;
  Knowledge knowledge_;
  GraphBuilder builder_;
  const int64_t cap_;
  const std::vector<int32_t> producer_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  ///< by node
};

}  // namespace

void bucket(Graph& graph, PassContext& context) {
  if (const int64_t cap = context.training->bucket_bytes; cap > 0) Bucketing(graph, context.options.ops, cap).run();
}

}  // namespace plait

// Raise, rotary position embeddings: x cos + rotate(x) sin, found by evaluating it for three tokens.
#include <algorithm>

#include "core/base/error_kind.h"
#include "core/passes/raise/region.h"

namespace plait {
namespace {

/// Layout of angles in a table, and of pairs in x.
struct Form {
  bool doubled;      ///< each angle twice
  bool interleaved;  ///< pairs are neighbours, not halves
  int64_t angles;    ///< pairs
  int64_t stride;    ///< between angles in a row of the table
};

/// x [1, heads, s, d] or, `tokens_first`, [1, s, heads, d], rotated by tables [s, width].
std::vector<float> rotated(const std::vector<float>& x, const Shape& shape, const std::vector<float>& cosine,
                           const std::vector<float>& sine, int64_t width, bool tokens_first, const Form& form) {
  std::vector<float> out = x;
  int64_t heads = shape[tokens_first ? 2 : 1], s = shape[tokens_first ? 1 : 2], d = shape[3];
  for (int64_t row = 0; row < heads * s; ++row)
    for (int64_t k = 0; k < form.angles; ++k) {
      auto first = static_cast<size_t>(row * d + (form.interleaved ? 2 * k : k));
      auto second = static_cast<size_t>(row * d + (form.interleaved ? 2 * k + 1 : k + form.angles));
      auto angle = static_cast<size_t>((tokens_first ? row / heads : row % s) * width + k * form.stride);
      out[first] = x[first] * cosine[angle] - x[second] * sine[angle];
      out[second] = x[second] * cosine[angle] + x[first] * sine[angle];
    }
  return out;
}

Node made_node(Graph& graph, std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) {
  Node node;
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  node.outputs = {graph.add_value({})};
  node.attributes = std::move(attributes);
  return node;
}

/// plait.RoPE for x [b, s, heads, d] and tables [1, t, z]; between two Transposes for x [b, heads, s, d].
void add_rope(Graph& graph, ValueId x, ValueId cosine, ValueId sine, bool interleaved, bool tokens_first,
              ValueId output, std::vector<Node>& out) {
  Attributes swap, pairs;
  swap.set("perm", std::vector<int64_t>{0, 2, 1, 3});
  pairs.set("interleaved", int64_t{interleaved});
  if (tokens_first) {
    out.push_back(made_node(graph, "plait.RoPE", {x, cosine, sine}, pairs));
    out.back().outputs = {output};
    return;
  }
  out.push_back(made_node(graph, "Transpose", {x}, swap));
  out.push_back(made_node(graph, "plait.RoPE", {out.back().outputs[0], cosine, sine}, pairs));
  out.push_back(made_node(graph, "Transpose", {out.back().outputs[0]}, swap));
  out.back().outputs = {output};
}

/// The table as [1, t, angles], each angle once.
ValueId plain_table(Graph& graph, ValueId table, int64_t width, const Form& form, std::vector<Node>& out) {
  ValueId sizes = graph.add_constant(Tensor::of_ints(std::vector<int64_t>{1, -1, width}));
  out.push_back(made_node(graph, "Reshape", {table, sizes}));
  if (form.angles == width) return out.back().outputs[0];
  std::vector<int64_t> each;
  for (int64_t k = 0; k < form.angles; ++k) each.push_back(k * form.stride);
  Attributes last;
  last.set("axis", int64_t{2});
  out.push_back(made_node(graph, "Gather", {out.back().outputs[0], graph.add_constant(Tensor::of_ints(each))}, last));
  return out.back().outputs[0];
}

}  // namespace

std::optional<std::vector<Node>> lift_rope(const RegionProbe& probe, const Region& region) {
  const Dims& dims = *probe.dims(region.entry);
  if (region.side.size() != 2 || dims.size() != 4 || !dims[3].is_constant()) return std::nullopt;
  bool tokens_first = !dims[1].is_constant();
  const Dim& heads = dims[tokens_first ? 2 : 1];
  if (!heads.is_constant()) return std::nullopt;
  const std::vector<int32_t> places{5, 11, 2};
  auto s = static_cast<int64_t>(places.size());
  auto width = probe.last_size(region.side[0]);
  if (!width || width != probe.last_size(region.side[1]) || *width > dims[3].constant()) return std::nullopt;
  std::vector<std::pair<ValueId, Tensor>> side;
  std::vector<std::vector<float>> tables;
  try {
    for (ValueId id : region.side) {
      side.emplace_back(id, probe.at_positions(id, places));
      tables.push_back(floats(side.back().second));
      if (static_cast<int64_t>(tables.back().size()) != s * *width) return std::nullopt;
    }
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    return std::nullopt;  // they depend on more than positions
  }
  Shape shape{1, heads.constant(), s, dims[3].constant()};
  if (tokens_first) std::swap(shape[1], shape[2]);
  std::vector<float> x = samples(static_cast<size_t>(shape.elements()), -1, 1);
  auto y = probe.run(region, shape, s, x, side);
  if (!y) return std::nullopt;
  for (size_t cosine : {size_t{0}, size_t{1}})
    for (bool doubled : {true, false})
      for (bool interleaved : {false, true}) {
        Form form{doubled, interleaved, doubled ? *width / 2 : *width, doubled && interleaved ? 2 : 1};
        if (form.angles == 0 || 2 * form.angles > shape[3]) continue;
        if (!close(*y, rotated(x, shape, tables[cosine], tables[1 - cosine], *width, tokens_first, form))) continue;
        std::vector<Node> out;
        ValueId cos = plain_table(probe.graph, region.side[cosine], *width, form, out);
        ValueId sin = plain_table(probe.graph, region.side[1 - cosine], *width, form, out);
        add_rope(probe.graph, region.entry, cos, sin, interleaved, tokens_first, region.output, out);
        return out;
      }
  return std::nullopt;
}

std::optional<std::vector<Node>> lift_rotary_op(const RegionProbe& probe, const Node& node) {
  auto rank = [&](size_t input) {
    return probe.dims(node.inputs[input]) ? probe.dims(node.inputs[input])->size() : 0;
  };
  bool by_position = node.inputs.size() > 3 && node.inputs[3] != no_value;
  if (rank(0) != 4 || (!by_position && rank(1) != 3)) return std::nullopt;
  std::vector<Node> out;
  ValueId tables[2] = {node.inputs[1], node.inputs[2]};
  if (by_position)
    for (ValueId& table : tables) {
      out.push_back(made_node(probe.graph, "Gather", {table, node.inputs[3]}));
      table = out.back().outputs[0];
    }
  bool interleaved = node.attributes.integer("interleaved", 0) != 0;
  add_rope(probe.graph, node.inputs[0], tables[0], tables[1], interleaved, false, node.outputs[0], out);
  return out;
}

}  // namespace plait

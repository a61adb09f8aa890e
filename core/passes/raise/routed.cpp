// Raise, routed rows: exports that unroll experts run each on its tokens. A NonZero finds the tokens' numbers, rows
// are gathered by these, and results are added back at their tokens. Tokens stay independent if rows are only
// gathered and scattered by their own token's number, which is checked here.
#include "core/passes/raise/routed.h"

#include <algorithm>
#include <set>

#include "core/base/text.h"

namespace plait {
namespace {

std::optional<int64_t> number(const Graph& graph, ValueId id) {
  const Tensor* tensor = id == no_value ? nullptr : graph.constant(id);
  if (!tensor || tensor->elements() != 1 || is_float(tensor->dtype())) return std::nullopt;
  return to_ints(tensor->view())[0];
}

std::vector<int64_t> numbers(const Graph& graph, const Node& node, size_t input) {
  const Tensor* tensor = input < node.inputs.size() ? graph.constant(node.inputs[input]) : nullptr;
  return tensor && !is_float(tensor->dtype()) ? to_ints(tensor->view()) : std::vector<int64_t>();
}

}  // namespace

const Dims* RoutedRows::dims(ValueId id) const {
  const auto& found = id == no_value ? std::nullopt : graph_.value(id).type.dims;
  return found ? &*graph_.value(id).type.dims : nullptr;
}

const RoutedRows::Tag* RoutedRows::tag(ValueId id) const {
  auto found = tags_.find(id);
  return found == tags_.end() ? nullptr : &found->second;
}

bool RoutedRows::has_tokens(ValueId id) const {
  const Dims* found = dims(id);
  return found && std::any_of(found->begin(), found->end(), [&](const Dim& dim) { return mentions(dim, tokens_); });
}

bool RoutedRows::concerns(const Node& node) const {
  if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return tag(id) != nullptr; }))
    return true;
  return node.op == "NonZero" && has_tokens(node.inputs[0]);
}

/// The indices of true elements in [tokens], or [choices, tokens] in either order.
bool RoutedRows::begin(const Node& node) {
  const Dims *marks = dims(node.inputs[0]), *found = dims(node.outputs[0]);
  if (!marks || !found || marks->size() > 2 || found->size() != 2 || !(*found)[1].single_symbol()) return false;
  Tag tag;
  tag.count = *(*found)[1].single_symbol();
  tag.component_axis = 0;
  int tokens = 0;
  for (const Dim& dim : *marks) {
    bool token = dim == Dim::symbol(tokens_);
    if (!token && !dim.is_constant()) return false;
    tokens += token;
    tag.forms.push_back(token ? Form{1, 0, 0} : Form{0, 1, 0});
    if (!token) choices_[tag.count] = dim.constant();
  }
  if (tokens != 1) return false;
  tags_[node.outputs[0]] = std::move(tag);
  return true;
}

/// Reshapes of token and choice numbers.
bool RoutedRows::reshape_numbers(const Node& node, const Tag& from) {
  const Dims *before = dims(node.inputs[0]), *after = dims(node.outputs[0]);
  if (!before || !after) return false;
  Tag to = from;
  auto rows = static_cast<size_t>(std::count(after->begin(), after->end(), Dim::symbol(from.count)));
  auto ones = static_cast<size_t>(std::count(after->begin(), after->end(), Dim(1)));
  if (node.op == "Cast" || node.op == "Identity") {
    tags_[node.outputs[0]] = std::move(to);
    return true;
  }
  if (node.op == "Transpose") {
    if (rows != 1) return false;
    std::vector<int64_t> order = node.attributes.integers("perm");
    if (to.component_axis >= 0)
      to.component_axis = static_cast<int>(std::find(order.begin(), order.end(), to.component_axis) - order.begin());
    tags_[node.outputs[0]] = std::move(to);
    return true;
  }
  bool spreads = node.op == "Expand" && from.component_axis < 0 && rows == 1;
  bool moves = node.op == "Reshape" || node.op == "Squeeze" || node.op == "Unsqueeze" || node.op == "Flatten";
  if (spreads || (moves && from.forms.size() == 1 && rows == 1 && rows + ones == after->size())) {
    to.component_axis = -1;
    tags_[node.outputs[0]] = std::move(to);
    return true;
  }
  return false;
}

/// Selects one kind of number from several.
bool RoutedRows::pick_numbers(const Node& node, const Tag& from) {
  if (from.component_axis < 0) return false;
  auto along = [&](int64_t axis) {
    auto rank = static_cast<int64_t>(dims(node.inputs[0])->size());
    return (axis < 0 ? axis + rank : axis) == from.component_axis;
  };
  auto one = [&](ValueId id, int64_t which) {
    if (which < 0) which += static_cast<int64_t>(from.forms.size());
    if (which < 0 || which >= static_cast<int64_t>(from.forms.size())) return false;
    tags_[id] = Tag{from.count, -1, false, {from.forms[static_cast<size_t>(which)]}};
    return true;
  };
  if (node.op == "Split" && along(node.attributes.integer("axis", 0)) && node.outputs.size() == from.forms.size()) {
    for (size_t k = 0; k < node.outputs.size(); ++k) one(node.outputs[k], static_cast<int64_t>(k));
    return true;
  }
  if (node.op == "Gather" && along(node.attributes.integer("axis", 0))) {
    auto which = number(graph_, node.inputs[1]);
    return which && one(node.outputs[0], *which);
  }
  if (node.op == "Slice") {
    std::vector<int64_t> axes = numbers(graph_, node, 3), starts = numbers(graph_, node, 1);
    const Dims* after = dims(node.outputs[0]);
    bool single = after && (*after)[static_cast<size_t>(from.component_axis)] == Dim(1);
    return axes.size() == 1 && starts.size() == 1 && along(axes[0]) && single && one(node.outputs[0], starts[0]);
  }
  return false;
}

/// Sums and multiples of numbers, and concatenated numbers.
bool RoutedRows::combine_numbers(const Node& node) {
  const Tag *left = tag(node.inputs[0]), *right = node.inputs.size() > 1 ? tag(node.inputs[1]) : nullptr;
  const Tag& any = left ? *left : *right;
  auto is_index = [](const Tag* one) {
    return one && !one->rows && one->forms.size() == 1 && one->component_axis < 0;
  };
  if (node.op == "Concat") {
    const Dims* after = dims(node.outputs[0]);
    int64_t axis = node.attributes.integer("axis", 0);
    if (!after || (axis != -1 && axis + 1 != static_cast<int64_t>(after->size()))) return false;
    Tag to{any.count, static_cast<int>(after->size()) - 1, false, {}};
    for (ValueId id : node.inputs) {
      const Tag* one = tag(id);
      if (!is_index(one) || one->count != any.count || dims(id)->back() != Dim(1)) return false;
      to.forms.push_back(one->forms[0]);
    }
    tags_[node.outputs[0]] = std::move(to);
    return true;
  }
  bool product = node.op == "Mul", sum = node.op == "Add";
  if (!product && !sum) return false;
  Tag to{any.count, -1, false, {Form{}}};
  Form& form = to.forms[0];
  if (left && right) {
    if (!sum || !is_index(left) || !is_index(right) || left->count != right->count) return false;
    const Form &a = left->forms[0], &b = right->forms[0];
    form = {a.place + b.place, a.choice + b.choice, a.constant + b.constant};
  } else {
    auto constant = number(graph_, node.inputs[left ? 1 : 0]);
    if (!constant || !is_index(&any)) return false;
    form = any.forms[0];
    if (product) form = {form.place * *constant, form.choice * *constant, form.constant * *constant};
    else form.constant += *constant;
  }
  tags_[node.outputs[0]] = std::move(to);
  return true;
}

/// Whether indexing an axis of `size` by `form` selects what belongs to the row's own token.
bool RoutedRows::own(const Form& form, const Dim& size, SymbolId count) const {
  if (!mentions(size, tokens_)) return true;
  if (size == Dim::symbol(tokens_)) return form == Form{1, 0, 0};
  if (size.terms().size() != 1 || size.terms()[0].symbols != std::vector<SymbolId>{tokens_}) return false;
  int64_t each = size.terms()[0].coefficient, last = form.constant;
  auto choices = choices_.find(count);
  if (form.choice == 1) last += (choices == choices_.end() ? 1 : choices->second) - 1;
  return form.place == each && (form.choice == 0 || form.choice == 1) && form.constant >= 0 && last < each;
}

/// Gathers rows of the tokens' values by their numbers.
bool RoutedRows::gather(const Node& node) {
  const Tag* at = tag(node.inputs[1]);
  const Dims* data = dims(node.inputs[0]);
  if (!at || at->rows || !data || tag(node.inputs[0])) return false;
  size_t first = 0;
  if (node.op == "Gather") {
    int64_t axis = node.attributes.integer("axis", 0);
    first = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(data->size()) : axis);
    if (at->component_axis >= 0) return false;
  } else if (at->component_axis + 1 != static_cast<int>(dims(node.inputs[1])->size()) ||
             node.attributes.integer("batch_dims", 0) != 0) {
    // An index tuple of one number may lack its axis.
    bool single = at->forms.size() == 1 && dims(node.inputs[1])->back() == Dim(1);
    if (!single || node.attributes.integer("batch_dims", 0) != 0) return false;
  }
  for (size_t axis = 0; axis < data->size(); ++axis) {
    bool picked = axis >= first && axis < first + at->forms.size();
    if (picked ? !own(at->forms[axis - first], (*data)[axis], at->count) : mentions((*data)[axis], tokens_))
      return false;
  }
  tags_[node.outputs[0]] = Tag{at->count, -1, true, {}};
  return true;
}

/// Scatters rows back to their tokens: the result is per token again.
bool RoutedRows::scatter(const Node& node) const {
  const Tag *at = tag(node.inputs[1]), *rows = tag(node.inputs[2]);
  const Dims *data = dims(node.inputs[0]), *after = dims(node.outputs[0]);
  if (!at || !rows || at->rows || at->count != rows->count || tag(node.inputs[0]) || !data || !after) return false;
  if (at->forms.size() != 1 || !(at->forms[0] == Form{1, 0, 0}) || *data != *after) return false;
  size_t axis = 0;
  if (node.op == "ScatterElements") {
    int64_t given = node.attributes.integer("axis", 0);
    axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(data->size()) : given);
    // An update of element [.., n, ..] keeps its index in all axes but this one.
    const Dims* update = dims(node.inputs[2]);
    if (!update || update->size() != data->size() || (*update)[axis] != Dim::symbol(rows->count)) return false;
  }
  for (size_t k = 0; k < data->size(); ++k)
    if (k == axis ? (*data)[k] != Dim::symbol(tokens_) : mentions((*data)[k], tokens_)) return false;
  return true;
}

/// The number of rows of a route depends on all tokens, so it may only be used as a shape.
bool RoutedRows::only_a_shape(ValueId sizes) const {
  std::vector<ValueId> open{sizes};
  std::set<ValueId> seen{sizes};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end()) return false;
    for (int32_t index : readers_[static_cast<size_t>(id)]) {
      const Node& node = graph_.nodes[static_cast<size_t>(index)];
      const bool first = node.inputs[0] == id;
      if (node.op == "ConstantOfShape" || ((node.op == "Expand" || node.op == "Reshape") && !first)) continue;
      const bool moves = node.op == "Concat" || node.op == "Cast" || node.op == "Squeeze" || node.op == "Unsqueeze" ||
                         ((node.op == "Gather" || node.op == "Slice") && first);
      if (!moves) return false;
      if (seen.insert(node.outputs[0]).second) open.push_back(node.outputs[0]);
    }
  }
  return true;
}

bool RoutedRows::follow(const Node& node) {
  if (node.op == "NonZero") return begin(node);
  if (node.op == "Shape") return only_a_shape(node.outputs[0]);
  if ((node.op == "ScatterElements" || node.op == "ScatterND") && !tag(node.inputs[0])) return scatter(node);
  bool gathers = node.op == "Gather" || node.op == "GatherND";
  if (gathers && tag(node.inputs[1])) return gather(node);
  const Tag* first = tag(node.inputs[0]);
  if (first && !first->rows && (reshape_numbers(node, *first) || pick_numbers(node, *first))) return true;
  bool only_numbers = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id == no_value || graph_.value(id).constant || (tag(id) && !tag(id)->rows);
  });
  if (only_numbers && combine_numbers(node)) return true;
  return false;
}

std::optional<SymbolId> RoutedRows::rows_of(const Node& node) const {
  std::optional<SymbolId> count;
  for (ValueId id : node.inputs) {
    const Tag* one = tag(id);
    if (!one && has_tokens(id)) return std::nullopt;
    if (one && ((count && *count != one->count) || one->component_axis >= 0)) return std::nullopt;
    if (one) count = one->count;
  }
  return count;
}

void RoutedRows::keep_rows(const Node& node, SymbolId count) {
  for (ValueId id : node.outputs)
    if (id != no_value) tags_[id] = Tag{count, -1, true, {}};
}

}  // namespace plait

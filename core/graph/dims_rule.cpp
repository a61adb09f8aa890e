#include "core/graph/dims_rule.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

namespace {

template <class Rule, class Visit>
void each_tensor(Rule& rule, Visit visit) {
  for (size_t i = 0; i < rule.operands.size(); ++i) visit(rule.operands[i], true, i);
  for (size_t i = 0; i < rule.results.size(); ++i) visit(rule.results[i], false, i);
}

using NameSet = std::set<std::string, std::less<>>;

NameSet names_in(const RuleTensor& tensor) {
  NameSet out;
  for (const RuleDim& dim : tensor.dims)
    for (const Factor& factor : dim.factors) out.insert(factor.name);
  return out;
}

/// `count` names that are not in `used`, first those of row dimensions.
std::vector<std::string> fresh_names(size_t count, const NameSet& used) {
  std::vector<std::string> out;
  auto offer = [&](std::string name) {
    if (out.size() < count && !used.contains(name)) out.push_back(std::move(name));
  };
  for (char letter : std::string_view("bstuwxyz")) offer(std::string(1, letter));
  for (int i = 1; out.size() < count; ++i) offer(cat("b", i));
  return out;
}

bool has_ellipsis(const RuleTensor& tensor) {
  return std::any_of(tensor.dims.begin(), tensor.dims.end(), [](const RuleDim& dim) { return dim.ellipsis; });
}

bool is_one(const Dim& dim) { return dim.is_constant() && dim.constant() == 1; }

/// Expansion of "..." in one rule: row dims, aligned right.
struct Rows {
  std::vector<std::string> names;
  std::vector<bool> single;  ///< all operands have 1 there

  RuleDim dim(size_t position, bool one) const {
    RuleDim out;
    if (!one && !single[position]) out.factors.push_back({names[position]});
    return out;
  }
};

/// For each operand with "...": the number of dims it expands to (0 if the dims are unknown).
size_t row_count(const RuleTensor& operand, const Dims* dims, size_t index) {
  if (!dims || !has_ellipsis(operand)) return 0;
  size_t named = operand.dims.size() - 1;
  if (dims->size() < named)
    throw Error(Code::bad_model, cat("input ", index, " has rank ", dims->size(), ", expected at least ", named));
  return dims->size() - named;
}

void replace_ellipsis(RuleTensor& tensor, const std::vector<RuleDim>& rows) {
  auto place = std::find_if(tensor.dims.begin(), tensor.dims.end(), [](const RuleDim& dim) { return dim.ellipsis; });
  if (place == tensor.dims.end()) return;
  place = tensor.dims.erase(place);
  tensor.dims.insert(place, rows.begin(), rows.end());
}

size_t ellipsis_place(const RuleTensor& tensor) {
  auto place = std::find_if(tensor.dims.begin(), tensor.dims.end(), [](const RuleDim& dim) { return dim.ellipsis; });
  return static_cast<size_t>(place - tensor.dims.begin());
}

}  // namespace

std::vector<FactorUse> factors(const DimsRule& rule) {
  std::vector<FactorUse> out;
  each_tensor(rule, [&](const RuleTensor& tensor, bool operand, size_t) {
    for (const RuleDim& dim : tensor.dims)
      for (const Factor& factor : dim.factors) {
        auto use =
            std::find_if(out.begin(), out.end(), [&](const FactorUse& u) { return u.factor.name == factor.name; });
        if (use == out.end()) use = out.insert(out.end(), {factor});
        use->factor.whole |= factor.whole;
        use->factor.offset |= factor.offset;
        use->factor.jagged |= factor.jagged;
        (operand ? use->in_operands : use->in_results) = true;
      }
  });
  return out;
}

namespace {

/// The row dims that operands share, aligned right: position p of operand i's rows is dim ellipsis_place + p - (rank
/// - counts[i]) of it.
struct RowLayout {
  RowLayout(const DimsRule& rule, const DimsList& operands) : rule(rule), operands(operands) {
    for (size_t i = 0; i < rule.operands.size(); ++i)
      counts.push_back(row_count(rule.operands[i], i < operands.size() ? operands[i] : nullptr, i));
    rank = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    NameSet used;
    each_tensor(rule, [&](const RuleTensor& tensor, bool, size_t) { used.merge(names_in(tensor)); });
    rows = {fresh_names(rank, used), std::vector<bool>(rank, true)};
    each([&](size_t, size_t position, const Dim& size) {
      if (!is_one(size)) rows.single[position] = false;
    });
  }

  const Dim& size_at(size_t i, size_t position) const {
    return (*operands[i])[ellipsis_place(rule.operands[i]) + position - (rank - counts[i])];
  }
  /// visit(operand, position, size)
  template <class Visit>
  void each(Visit visit) const {
    for (size_t i = 0; i < counts.size(); ++i)
      for (size_t p = rank - counts[i]; p < rank; ++p) visit(i, p, size_at(i, p));
  }

  const DimsRule& rule;
  const DimsList& operands;
  std::vector<size_t> counts;
  size_t rank = 0;
  Rows rows;
};

}  // namespace

DimsRule expand(const DimsRule& rule, const DimsList& operands) {
  DimsRule out = rule;
  const RowLayout layout(rule, operands);
  for (size_t i = 0; i < layout.counts.size(); ++i) {
    std::vector<RuleDim> dims;
    for (size_t p = layout.rank - layout.counts[i]; p < layout.rank; ++p)
      dims.push_back(layout.rows.dim(p, is_one(layout.size_at(i, p))));
    replace_ellipsis(out.operands[i], dims);
  }
  std::vector<RuleDim> all;
  for (size_t p = 0; p < layout.rank; ++p) all.push_back(layout.rows.dim(p, false));
  for (RuleTensor& result : out.results) replace_ellipsis(result, all);
  return out;
}

std::vector<std::string> open_rows(const DimsRule& rule, const DimsList& operands) {
  const RowLayout layout(rule, operands);
  std::vector<const Dim*> first(layout.rank, nullptr);
  std::vector<bool> several(layout.rank), number(layout.rank);
  layout.each([&](size_t, size_t position, const Dim& size) {
    if (is_one(size)) return;
    if (size.is_constant()) number[position] = true;
    else if (!first[position]) first[position] = &size;
    else if (*first[position] != size) several[position] = true;
  });
  std::vector<std::string> out;
  for (size_t p = 0; p < layout.rank; ++p)
    if (several[p] && !number[p]) out.push_back(layout.rows.names[p]);
  return out;
}

std::optional<Dim> unify(const Dim& a, const Dim& b) {
  if (a == b) return a;
  if (a.is_constant() && b.is_constant()) return std::nullopt;
  if (a.is_constant() || b.is_constant()) return a.is_constant() ? a : b;
  return b.symbols().back() < a.symbols().back() ? b : a;
}

std::string operand_label(const OpSchema* schema, size_t index) {
  std::string label = cat("input ", index);
  if (!schema || trimmed(schema->inputs).empty()) return label;
  std::vector<std::string> names = split(trimmed(schema->inputs), ' ');
  std::string name = names[std::min(index, names.size() - 1)];
  return cat(label, " (", name.substr(0, name.find_first_of("?.")), ")");
}

namespace {

/// An operand or result, whose label is needed in errors only.
struct TensorPlace {
  const OpSchema* schema;
  bool operand;
  size_t index;
  std::string label() const { return operand ? operand_label(schema, index) : cat("output ", index); }
};

/// Fills `sizes` from the dims of one tensor at a time, until nothing more follows.
struct Binder {
  FactorSizes& sizes;
  std::map<std::string, TensorPlace, std::less<>> places;  ///< the origin of each size
  bool changed = false;

  void set(const Factor& factor, const Dim& size, const TensorPlace& place) {
    auto [known, added] = sizes.try_emplace(factor.name, size);
    if (added) {
      places.insert_or_assign(factor.name, place);
      changed = true;
      return;
    }
    std::optional<Dim> both = unify(known->second, size);
    if (!both)
      throw Error(Code::bad_model, cat(place.label(), ": factor ", factor.name, " is ", size.constant(), ", but ",
                                       known->second.constant(), " by ", places.at(factor.name).label()));
    if (*both == known->second) return;
    known->second = *both;
    places.insert_or_assign(factor.name, place);
    changed = true;
  }

  /// A zero product determines no factors, unless none of them is 0.
  void empty(const RuleDim& rule, const TensorPlace& place) const {
    auto at_least_one = [&](const Factor& factor) {
      auto known = sizes.find(factor.name);
      return factor.fixed > 0 ||
             (known != sizes.end() && known->second.is_constant() && known->second.constant() > 0);
    };
    if (std::all_of(rule.factors.begin(), rule.factors.end(), at_least_one))
      throw Error(Code::bad_model, cat(place.label(), ": a dimension is 0, the product of its factors is not"));
  }

  void dim(const RuleDim& rule, const Dim& size, const TensorPlace& place) {
    if (rule.factors.size() > 1 && size == Dim(0)) return empty(rule, place);
    Dim rest = size;
    const Factor* open = nullptr;
    for (const Factor& factor : rule.factors) {
      auto known = sizes.find(factor.name);
      bool alone = rule.factors.size() == 1;
      if (factor.fixed || (known != sizes.end() && !alone)) {
        std::optional<Dim> quotient = rest.divided(factor.fixed ? Dim(factor.fixed) : known->second);
        if (!quotient && rest.is_constant() && (factor.fixed || known->second.is_constant()))
          throw Error(Code::bad_model,
                      cat(place.label(), ": a dimension of ", size.constant(), " does not divide by factor ",
                          factor.name, factor.fixed ? std::string() : cat(" = ", known->second.constant())));
        if (!quotient) return;
        rest = *quotient;
      } else if (open) {
        return;  // two open factors: another dim has to determine one
      } else {
        open = &factor;
      }
    }
    if (open) return set(*open, rest, place);
    if (rest.is_constant() && rest.constant() != 1)
      throw Error(Code::bad_model,
                  cat(place.label(), ": a dimension is ", rest.constant(), " times the size expected (",
                      rule.factors.empty() ? "1" : "the product of its factors", ")"));
  }

  void tensor(const RuleTensor& rule, const Dims& dims, const TensorPlace& place) {
    bool scalar = rule.dims.empty() && dims.size() == 1 && is_one(dims[0]);
    if (scalar) return;  // files also write scalars as [1]
    if (rule.dims.size() != dims.size())
      throw Error(Code::bad_model, cat(place.label(), " has rank ", dims.size(), ", expected ", rule.dims.size()));
    for (size_t i = 0; i < dims.size(); ++i) dim(rule.dims[i], dims[i], place);
  }
};

}  // namespace

FactorSizes factor_sizes(const DimsRule& rule, const DimsList& operands, const DimsList& results,
                         const OpSchema* schema) {
  FactorSizes sizes;
  Binder binder{sizes, {}};
  do {
    binder.changed = false;
    each_tensor(rule, [&](const RuleTensor& tensor, bool operand, size_t i) {
      const DimsList& list = operand ? operands : results;
      if (i >= list.size() || !list[i]) return;
      binder.tensor(tensor, *list[i], {schema, operand, i});
    });
  } while (binder.changed);
  return sizes;
}

namespace {

std::optional<Dim> size_of(const Factor& factor, const FactorSizes& sizes) {
  if (factor.fixed) return Dim(factor.fixed);
  auto known = sizes.find(factor.name);
  if (known == sizes.end()) return std::nullopt;
  return known->second;
}

}  // namespace

namespace {

std::optional<Dim> size_of(const RuleDim& dim, const FactorSizes& sizes) {
  Dim size(1);
  for (const Factor& factor : dim.factors) {
    std::optional<Dim> part = size_of(factor, sizes);
    if (!part) return std::nullopt;
    size = size * *part;
  }
  return size;
}

}  // namespace

std::optional<Dims> result_dims(const DimsRule& rule, const FactorSizes& sizes, size_t index) {
  Dims out;
  for (const RuleDim& dim : rule.results.at(index).dims) {
    std::optional<Dim> size = size_of(dim, sizes);
    if (!size) return std::nullopt;
    out.push_back(std::move(*size));
  }
  return out;
}

bool takes_for_equal(const DimsRule& rule, const DimsList& operands, const FactorSizes& sizes) {
  for (size_t i = 0; i < rule.operands.size() && i < operands.size(); ++i) {
    const std::vector<RuleDim>& dims = rule.operands[i].dims;
    if (!operands[i] || operands[i]->size() != dims.size()) continue;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      std::optional<Dim> size = size_of(dims[axis], sizes);
      if (size && *size != (*operands[i])[axis]) return true;
    }
  }
  return false;
}

Dim flops(const DimsRule& rule, const FactorSizes& sizes) {
  std::map<std::string, Dim, std::less<>> known;
  NameSet kept;  // used in results
  for (const RuleTensor& result : rule.results) kept.merge(names_in(result));
  each_tensor(rule, [&](const RuleTensor& tensor, bool, size_t) {
    for (const RuleDim& dim : tensor.dims)
      for (const Factor& factor : dim.factors) known[factor.name] = size_of(factor, sizes).value_or(Dim(1));
  });
  auto volume = [&](const NameSet& names) {
    Dim out(1);
    for (const std::string& name : names) out = out * known[name];
    return out;
  };

  Dim total;
  NameSet running;
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    NameSet operand = names_in(rule.operands[i]), both = running;
    both.insert(operand.begin(), operand.end());
    bool contracts = std::any_of(operand.begin(), operand.end(), [&](const std::string& name) {
      return running.contains(name) && !kept.contains(name);
    });
    if (contracts && rule.operands[i].linear != Linearity::together) total = total + Dim(2) * volume(both);
    NameSet later = kept;
    for (size_t j = i + 1; j < rule.operands.size(); ++j) later.merge(names_in(rule.operands[j]));
    running.clear();
    std::set_intersection(both.begin(), both.end(), later.begin(), later.end(),
                          std::inserter(running, running.end()));
  }
  if (total != Dim(0) || rule.results.empty()) return total;
  return volume(names_in(rule.results[0]));
}

DimsList dims_list(const std::vector<Type>& types) {
  DimsList out;
  for (const Type& type : types) out.push_back(type.dims ? &*type.dims : nullptr);
  return out;
}

std::optional<DimsRule> written_rule(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                                     const std::vector<Type>& outputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (node.inputs[i] != no_value && !inputs[i].dims) return std::nullopt;
  std::string written = schema.dims_of ? schema.dims_of(node, inputs, outputs) : schema.dims;
  if (written.empty()) return std::nullopt;
  DimsRule rule = parse_dims_rule(written);

  // Adjusts the operands to the node's: a repeated last one is repeated, optional ones at the end may be missing.
  bool repeated = schema.max_inputs < 0 && !rule.operands.empty();
  RuleTensor last = repeated ? rule.operands.back() : RuleTensor{};
  rule.operands.resize(node.inputs.size(), last);
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] == no_value) rule.operands[i] = {};
  if (rule.results.size() < node.outputs.size())
    throw Error(Code::internal, cat(describe(node), ": the dims rule ", quote(written), " has ", rule.results.size(),
                                    " results, the node ", node.outputs.size()));
  rule.results.resize(node.outputs.size());
  return rule;
}

std::optional<DimsRule> rule_of(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                                const std::vector<Type>& outputs) {
  std::optional<DimsRule> written = written_rule(schema, node, inputs, outputs);
  if (!written) return std::nullopt;
  return expand(*written, dims_list(inputs));
}

}  // namespace plait

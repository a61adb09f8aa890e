#include "core/passes/adapt/sites.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/text.h"
#include "core/passes/adapt/linear_roles.h"
#include "core/passes/adapt/module_names.h"
#include "core/passes/base/parameter_states.h"
#include "core/passes/base/pass.h"

namespace plait {
namespace {

/// Names of this operand's weight: in the file, of the value, and of the node.
std::vector<std::string> names_at(const Graph& graph, const Node& node, size_t operand) {
  const Value& weight = graph.value(node.inputs[operand]);
  std::vector<std::string> out;
  if (weight.constant) out = names_of(*weight.constant);
  if (!weight.name.empty()) out.push_back(weight.name);
  if (!node.name.empty()) out.push_back(node.name);
  return out;
}

bool tells(const std::string& name) {
  return name.find(".weight") != std::string::npos || name.find(".qweight") != std::string::npos;
}

/// The name from which the module is derived: the weight's, or the node's if the file numbers its tensors.
std::string telling_name(const std::vector<std::string>& names, const char* kind, size_t index) {
  const auto found = std::find_if(names.begin(), names.end(), tells);
  if (found != names.end()) return *found;
  return names.empty() ? cat(kind, ".", index) : names.back();
}

/// The rows of the file's weight that the Linear at this node reads.
PackedProduct rows_of_weight(const Graph& graph, const Node& node) {
  PackedProduct out{.size = graph.value(node.outputs[0]).type.dims->back().constant()};
  if (const auto& weight = graph.value(node.inputs[1]).constant)
    for (const RecipeStep& step : weight->steps)
      if (step.kind == RecipeStep::Kind::slice && step.numbers[2] - step.numbers[1] == out.size)
        out.begin = step.numbers[1];
  return out;
}

bool is_constant(const Graph& graph, ValueId id) { return id != no_value && graph.value(id).constant; }

/// If the names differ only in a running number: the name with * for it; otherwise nullopt.
std::optional<std::string> counted_name(const std::vector<std::string>& names) {
  if (names.size() < 2) return std::nullopt;
  const std::vector<std::string> first = split(names[0], '.');
  for (size_t step = 0; step < first.size(); ++step) {
    std::vector<std::string> counted = first;
    auto as_counted = [&](size_t number) {
      counted[step] = cat(number);
      return join(counted, ".");
    };
    size_t fits = 0;
    while (fits < names.size() && names[fits] == as_counted(fits)) ++fits;
    if (fits < names.size()) continue;
    counted[step] = "*";
    return join(counted, ".");
  }
  return std::nullopt;
}

class Sites {
 public:
  explicit Sites(const Graph& graph) : graph_(graph), producer_(producers(graph)) {
    for (const Node& node : graph.nodes)
      if (node.op == "plait.Embedding" && is_constant(graph, node.inputs[0]))
        for (const std::string& name : names_of(*graph.value(node.inputs[0]).constant)) of_tables_.insert(name);
  }

  std::vector<AdapterSite> find() {
    add_products();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_table(i);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_experts(i);
    return std::move(out_);
  }

 private:
  /// The module that the file specifies for the node, otherwise derived from the name.
  std::string module_of(const Node& node, std::string_view name) const {
    const auto known = graph_.modules.find(node.name);
    return known != graph_.modules.end() ? known->second : module_of_name(name);
  }

  /// An untied name for a head that reads the token table: from its node, otherwise the usual one.
  std::string name_of_product(const std::vector<std::string>& names, const Node& node, size_t index) const {
    const bool tied =
        std::any_of(names.begin(), names.end(), [&](const auto& name) { return of_tables_.contains(name); });
    if (!tied) return telling_name(names, "linear", index);
    return node.name.starts_with('/') ? node.name : "lm_head";
  }

  void add_products() {
    const auto roles = linear_roles(graph_);
    struct Product {
      PackedProduct rows;
      size_t site;
    };
    // By the weight's name, which its projections share; and these names by module.
    std::map<std::string, std::vector<Product>> packed;
    std::map<std::string, std::string> modules;
    std::map<std::string, std::set<std::string>> told;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != "plait.Linear") continue;
      std::vector<std::string> names = names_at(graph_, node, 1);
      const std::string name = name_of_product(names, node, i);
      packed[name].push_back({rows_of_weight(graph_, node), out_.size()});
      told[modules.emplace(name, module_of(node, name)).first->second].insert(name);
      out_.push_back({AdapterSite::Kind::product, i, 1, "", std::move(names), roles.at(i)});
    }
    for (auto& [name, products] : packed) {
      std::stable_sort(products.begin(), products.end(),
                       [](const Product& a, const Product& b) { return a.rows.begin < b.rows.begin; });
      std::vector<PackedProduct> rows;
      for (const Product& one : products) rows.push_back(one.rows);
      const std::string& module = modules.at(name);
      std::vector<std::string> names = names_of_products(module, rows);
      // Several projections of a module keep their names.
      const bool is_one = told.at(module).size() == 1;
      const bool are_parts = is_one && names.size() > 1 && are_of_one_module(names);
      for (size_t part = 0; part < names.size(); ++part) {
        AdapterSite& site = out_[products[part].site];
        site.module = is_one ? names[part] : part ? cat(name, ".copy", part) : name;
        if (are_parts) site.begin = rows[part].begin, site.rows = rows.back().begin + rows.back().size;
      }
    }
  }

  void add_table(size_t at) {
    const Node& node = graph_.nodes[at];
    if (node.op != "plait.Embedding" || !is_constant(graph_, node.inputs[0])) return;
    std::vector<std::string> names = names_at(graph_, node, 0);
    const std::string module = unique(module_of(node, telling_name(names, "table", at)));
    std::set<std::string_view> roles;
    if (!comes_of_positions(node.inputs[1])) roles.insert("embedding");
    out_.push_back({AdapterSite::Kind::table, at, 0, module, std::move(names), std::move(roles)});
  }

  bool comes_of_positions(ValueId id) const {
    const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    if (at < 0)
      return id != no_value &&
             (graph_.value(id).name == "positions" || graph_.value(id).name == mrope_positions_input);
    const auto& inputs = graph_.nodes[static_cast<size_t>(at)].inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) { return comes_of_positions(input); });
  }

  void add_experts(size_t at) {
    const Node& node = graph_.nodes[at];
    if (node.op != "plait.Experts") return;
    constexpr size_t gate = 3, up = 4, down = 5;
    const bool gated = node.inputs[up] != no_value;
    for (size_t operand : {gate, up, down}) {
      if (!is_constant(graph_, node.inputs[operand])) continue;
      const char* what = operand == down ? "down_proj" : operand == up || !gated ? "up_proj" : "gate_proj";
      std::vector<std::string> names = names_at(graph_, node, operand);
      out_.push_back({AdapterSite::Kind::experts,
                      at,
                      operand,
                      unique(module_of_experts(node, operand, what)),
                      std::move(names),
                      {"experts"}});
    }
  }

  /// From the names of the experts' weights; if these are packed or numbered, from the node's.
  std::string module_of_experts(const Node& node, size_t operand, const char* what) const {
    const std::vector<std::string> names = names_of(*graph_.value(node.inputs[operand]).constant);
    if (std::all_of(names.begin(), names.end(), tells))
      if (const auto counted = counted_name(names)) return module_of_name(*counted);
    const bool known = graph_.modules.contains(node.name);
    std::vector<std::string> steps = split(module_of(node, node.name), '.');
    if (steps.size() > 1 && !known) steps.pop_back();  // the op
    steps.erase(std::find(steps.begin(), steps.end(), "experts"), steps.end());
    steps.insert(steps.end(), {"experts", "*", what});
    return join(steps, ".");
  }

  std::string unique(std::string module) {
    std::string out = module;
    for (size_t copy = 1; !taken_.insert(out).second; ++copy) out = cat(module, ".copy", copy);
    return out;
  }

  const Graph& graph_;
  const std::vector<int32_t> producer_;
  std::set<std::string> of_tables_, taken_;
  std::vector<AdapterSite> out_;
};

}  // namespace

std::vector<AdapterSite> adapter_sites(const Graph& graph) { return Sites(graph).find(); }

bool is_of_site(const std::string& module, const AdapterSite& site) {
  return site.kind == AdapterSite::Kind::experts ? misfit(site.module, module) == 0 : means(module, site.module);
}

std::string module_of_expert(std::string_view module, int64_t expert) {
  const size_t at = module.find('*');
  return cat(module.substr(0, at), expert, module.substr(at + 1));
}

}  // namespace plait

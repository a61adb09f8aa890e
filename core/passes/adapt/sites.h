#pragma once
// Weights of a raised decoder that can have adapters.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace plait {

/// An operand that is a weight.
struct AdapterSite {
  enum class Kind {
    product,  ///< of a plait.Linear, [n, k]
    table,    ///< of a plait.Embedding, [k, n]
    experts,  ///< of plait.Experts, stacked, [e, n, k]
  };
  Kind kind = Kind::product;
  size_t node = 0, operand = 0;
  /// PEFT's name of the module (module_names.h); for experts with * in place of an expert's number.
  std::string module;
  /// In the file: of the weight, and of the node.
  std::vector<std::string> names;
  /// Projections: see linear_roles; "embedding" for a table of tokens; "experts".
  std::set<std::string_view> roles;
  /// For a projection that is a part of a packed module: first row in it, and number of rows; otherwise 0.
  int64_t begin = 0, rows = 0;
};

/// Projections first, each kind in node order.
std::vector<AdapterSite> adapter_sites(const Graph& graph);

/// Whether an adapter's module is this site's, or one of its experts'.
bool is_of_site(const std::string& module, const AdapterSite& site);

/// "model.layers.0.mlp.experts.3.up_proj" of "model.layers.0.mlp.experts.*.up_proj".
std::string module_of_expert(std::string_view module, int64_t expert);

}  // namespace plait

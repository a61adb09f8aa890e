#pragma once
// States that passes add to a graph and the Store.
#include "core/graph/graph_builder.h"
#include "core/passes/base/pass.h"

namespace plait {

/// Adds a State that starts as `initial`, which must have its dtype; null: zeros. `is_sum`: on several ranks, each
/// may hold a partial sum.
ValueId add_state(Graph& graph, GraphBuilder& builder, const std::string& key, DType dtype, const Shape& shape,
                  std::shared_ptr<const Constant> initial = nullptr, bool is_sum = false);
/// Adds a parameter's State.
ValueId add_parameter(Graph& graph, GraphBuilder& builder, const TrainedParameter& parameter);

/// Names of the file's tensors from which a constant is made.
std::vector<std::string> names_of(const Constant& constant);
/// Whether two parts of one tensor of the file share no element.
bool are_apart(const Constant& a, const Constant& b);

}  // namespace plait

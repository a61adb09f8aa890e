#pragma once
// Groups equal parts of a plan, which are shown once.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::cli {

struct PlanKind {
  const nlohmann::ordered_json* first;  ///< of its parts
  std::string title;                    ///< "layers 0 to 5, 7", "before the layers"
  int64_t parts = 0;
};
/// In the order of their first parts; without parts that have neither weights nor collectives.
std::vector<PlanKind> plan_kinds(const nlohmann::ordered_json& plan);

/// "tensor=4: 4 ranks"
std::string plan_mesh(const nlohmann::ordered_json& plan);
/// "1 all_gather, 5 all_reduce"
std::string plan_counts(const nlohmann::ordered_json& plan);
std::string joined(const nlohmann::ordered_json& texts, const char* separator);

}  // namespace plait::cli

#include <nlohmann/json.hpp>
#include "bindings/cli/plan.h"
namespace plait::cli {
std::string plan_page(const nlohmann::ordered_json&, const std::string&) { return {}; }
}  // namespace plait::cli

#include "bindings/cli/plan_kinds.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

/// "layers 0 to 5, 7" of ascending numbers.
std::string layers_text(const std::vector<int64_t>& layers) {
  std::string out = layers.size() == 1 ? "layer " : "layers ";
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    out += (i ? ", " : "") + std::to_string(layers[i]);
    if (end > i) out += (end == i + 1 ? ", " : " to ") + std::to_string(layers[end]);
    i = end + 1;
  }
  return out;
}

}  // namespace

std::vector<PlanKind> plan_kinds(const Json& plan) {
  const Json& parts = plan.at("parts");
  std::vector<PlanKind> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].at("weights").empty() && parts[i].at("collectives").empty()) continue;
    if (i == 0 || i + 1 == parts.size()) {
      out.push_back({&parts[i], i ? "after the layers" : "before the layers", 1});
      continue;
    }
    std::vector<int64_t> layers;
    for (size_t k = 1; k + 1 < parts.size(); ++k)
      if (parts[k].at("kind") == parts[i].at("kind")) layers.push_back(static_cast<int64_t>(k) - 1);
    if (layers.front() == static_cast<int64_t>(i) - 1)
      out.push_back({&parts[i], layers_text(layers), static_cast<int64_t>(layers.size())});
  }
  return out;
}

std::string plan_mesh(const Json& plan) {
  const auto ranks = plan.at("ranks").get<int64_t>();
  return plan.at("mesh").get<std::string>() + ": " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

std::string plan_counts(const Json& plan) {
  std::string out;
  for (const auto& [kind, count] : plan.at("totals").at("collectives").items())
    out += (out.empty() ? "" : ", ") + count.dump() + " " + kind;
  return out.empty() ? "no collectives" : out;
}

std::string joined(const Json& texts, const char* separator) {
  std::string out;
  for (const Json& text : texts) out += (out.empty() ? "" : separator) + text.get<std::string>();
  return out;
}

}  // namespace plait::cli

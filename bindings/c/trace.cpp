#include "bindings/c/trace.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/text.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

Json complete(std::string_view name, const char* category, size_t lane, double begin, double seconds) {
  constexpr double us = 1e6;
  return {{"name", name}, {"cat", category},  {"ph", "X"},          {"pid", 0},
          {"tid", lane},  {"ts", begin * us}, {"dur", seconds * us}};
}

Json lane_name(size_t lane, const std::string& name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", lane}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_text(const std::vector<std::vector<TraceEvent>>& ranks) {
  double first = std::numeric_limits<double>::max();
  for (const auto& events : ranks)
    for (const TraceEvent& event : events) first = std::min(first, event.begin);
  Json rows = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    rows.push_back(lane_name(rank, cat("rank ", rank)));
    const size_t beside = ranks.size() + rank;
    if (std::any_of(ranks[rank].begin(), ranks[rank].end(), [](const TraceEvent& event) { return event.async; }))
      rows.push_back(lane_name(beside, cat("rank ", rank, ", asynchronous")));
    for (const TraceEvent& event : ranks[rank]) {
      const double begin = event.begin - first;
      const size_t lane = event.async ? beside : rank;
      rows.push_back(
          complete(event.name, event.collective ? "collective" : "compute", lane, begin, event.end - event.begin));
      if (event.waited > 0) rows.push_back(complete("wait", "wait", lane, begin, event.waited));
    }
  }
  return Json{{"traceEvents", rows}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace plait::c_api

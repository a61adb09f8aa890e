#include "bindings/c/trace.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/text.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

Json complete(std::string_view name, const char* category, size_t rank, double begin, double seconds) {
  constexpr double us = 1e6;
  return {{"name", name}, {"cat", category},  {"ph", "X"},          {"pid", 0},
          {"tid", rank},  {"ts", begin * us}, {"dur", seconds * us}};
}

}  // namespace

std::string trace_text(const std::vector<std::vector<TraceEvent>>& ranks) {
  double first = std::numeric_limits<double>::max();
  for (const auto& events : ranks)
    for (const TraceEvent& event : events) first = std::min(first, event.begin);
  Json rows = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    rows.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", rank}, {"args", {{"name", cat("rank ", rank)}}}});
    for (const TraceEvent& event : ranks[rank]) {
      const double begin = event.begin - first;
      rows.push_back(
          complete(event.name, event.collective ? "collective" : "compute", rank, begin, event.end - event.begin));
      if (event.waited > 0) rows.push_back(complete("wait", "wait", rank, begin, event.waited));
    }
  }
  return Json{{"traceEvents", rows}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace plait::c_api

// GET /openapi.json: what the server takes and answers, for tools. Made of the routes, and of page/api.json, which has their schemas.
#include <algorithm>

#include "serving/http/page/page.h"
#include "serving/http/server.h"

namespace plait::http {
namespace {

/// What any answer may be but the one that was asked for.
Json failure_of(const char* schema) {
  const auto header = [](const char* what) {
    return Json{{"description", what}, {"schema", {{"type", "integer"}, {"minimum", 1}}}};
  };
  return {
      {"description",
       "The call is wrong (4xx; param is the path of its field), comes when there is too much to do (429), or the "
       "server cannot answer it (503)."},
      {"headers",
       {{"Retry-After", header("Seconds after which to come back.")},
        {"Retry-After-Ms", header("The same, in milliseconds.")}}},
      {"content", {{"application/json", {{"schema", {{"$ref", std::string("#/components/schemas/") + schema}}}}}}}};
}

Json operation_of(const Route& route, const Json& row, bool keys) {
  const std::string_view path = route.path;
  Json out = {{"summary", row.at("summary")}, {"tags", row.at("tags")}};
  const bool takes = row.contains("request");
  if (takes)
    out["requestBody"] = {{"required", true}, {"content", {{"application/json", {{"schema", row.at("request")}}}}}};
  if (const size_t at = path.find('{'); at != std::string_view::npos)
    out["parameters"] = Json::array({{{"name", path.substr(at + 1, path.find('}') - at - 1)},
                                      {"in", "path"},
                                      {"required", true},
                                      {"schema", {{"$ref", "#/components/schemas/ModelName"}}}}});
  Json content = {{row.value("content_type", "application/json"), {{"schema", row.at("answer")}}}};
  const Json text = {{"type", "string"}};
  const Json event = {{"type", "object"}, {"required", {"data"}}, {"properties", {{"data", text}, {"event", text}}}};
  if (row.contains("stream")) content["text/event-stream"] = {{"schema", event}};  // of each event
  out["responses"] = {{"200", {{"description", "Done."}, {"content", std::move(content)}}}};
  const Json other = {
      {"$ref", route.errors ? "#/components/responses/MessagesFailure" : "#/components/responses/Failure"}};
  for (const char* status : {"403", "408", "413", "429", "503"}) out["responses"][status] = other;
  if (!route.open) out["responses"]["401"] = other;
  if (takes || out.contains("parameters")) out["responses"]["404"] = other;
  if (takes) out["responses"]["400"] = other;
  if (keys && !route.open) out["security"] = Json::array({{{"key", Json::array()}}});
  return out;
}

bool is_page(std::string_view path) {
  const auto files = page_files();
  return std::any_of(files.begin(), files.end(), [&](const PageFile& file) { return file.path == path; });
}

}  // namespace

Json openapi_of(std::span<const Route> routes, const Json& models, bool keys) {
  Json table = Json::parse(api_table());
  Json& names = table.at("schemas").at("ModelName")["enum"];
  for (const Json& model : models) names.push_back(model.at("id"));
  if (names.is_null()) table["schemas"]["ModelName"].erase("enum");  // none yet
  Json paths = Json::object();
  for (const Route& route : routes) {
    if (is_page(route.path)) continue;
    std::string method = route.method;
    for (char& letter : method) letter = static_cast<char>(letter - 'A' + 'a');
    paths[route.path][method] = operation_of(route, table.at("routes").at(route.path), keys);
  }
  const Json info = {
      {"title", "plait serve"},
      {"version", plait_version()},
      {"description",
       "The wires of OpenAI and Anthropic, with fields of vLLM. Fields that are not here have no effect."}};
  return {{"openapi", "3.1.0"},
          {"info", info},
          {"paths", std::move(paths)},
          {"components",
           {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}},
            {"responses", {{"Failure", failure_of("Error")}, {"MessagesFailure", failure_of("MessagesError")}}},
            {"schemas", table.at("schemas")}}}};
}

}  // namespace plait::http

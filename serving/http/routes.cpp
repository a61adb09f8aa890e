// What the server answers, by method and path.
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "serving/http/base/failure.h"
#include "serving/http/page/page.h"
#include "serving/http/server.h"

namespace plait::http {

const Route Server::routes[] = {
    {"GET", "/health", &Server::health, true, true},
    {"GET", "/ready", &Server::ready, true, true},
    {"GET", "/", &Server::page, true, true},
    {"GET", "/app.js", &Server::page, true, true},
    {"GET", "/app.css", &Server::page, true, true},
    {"GET", "/metrics", &Server::metrics, false, false},
    {"GET", "/ranks", &Server::ranks, false, false},
    {"GET", "/openapi.json", &Server::openapi, false, true},
    {"GET", "/v1/models", &Server::models, false, false},
    {"GET", "/v1/models/{model}", &Server::models, false, false},
    {"POST", "/v1/chat/completions", &Server::chat, false, false},
    {"POST", "/v1/responses", &Server::respond, false, false},
    {"POST", "/v1/messages", &Server::message, false, false, messages_error},
    {"POST", "/v1/messages/count_tokens", &Server::count, false, false, messages_error},
    {"POST", "/v1/completions", &Server::complete, false, false},
    {"POST", "/v1/embeddings", &Server::embed, false, false},
    {"POST", "/tokenize", &Server::encode, false, false},
    {"POST", "/detokenize", &Server::decode, false, false},
    {"POST", "/v1/load_lora_adapter", &Server::load_adapter, false, false},
    {"POST", "/v1/unload_lora_adapter", &Server::unload_adapter, false, false},
};

const Route& Server::route_of(const Head& head) const {
  const Route* other = nullptr;
  for (const Route& route : routes) {
    const std::string_view path = route.path, begin = path.substr(0, path.find('{'));
    const bool fits =
        begin == path ? head.path == path : head.path.size() > begin.size() && head.path.starts_with(begin);
    if (!fits) continue;
    // Of HEAD the body is left out by the transport (RFC 9110, section 9.3.2).
    if (head.method == route.method || (head.method == "HEAD" && route.method == std::string_view("GET"))) return route;
    other = &route;
  }
  if (other)
    throw HttpError(405, std::string(head.path) + " is for " + other->method + ", not " + std::string(head.method),
                    "method_not_allowed")
        .with_field("allow: " + std::string(other->method) + (other->method == std::string_view("GET") ? ", HEAD" : "") +
                    "\n");
  throw HttpError(404, "there is no " + std::string(head.path.substr(0, 200)), "unknown_path");
}

std::unique_ptr<Answer> Server::health(const Call&) { return std::make_unique<Reply>("{\"status\":\"ok\"}"); }

std::unique_ptr<Answer> Server::page(const Call& call) {
  constexpr const char* fields =
      "content-security-policy: default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'\n"
      "x-content-type-options: nosniff\nreferrer-policy: no-referrer\ncache-control: no-cache\n";
  for (const PageFile& file : page_files())
    if (settings_.page && call.path == file.path)
      return std::make_unique<Reply>(std::string(file.text), 200, std::string(file.content_type), fields);
  throw HttpError(404, "there is no page: the server was started without it", "unknown_path");
}

std::unique_ptr<Answer> Server::openapi(const Call&) {
  return std::make_unique<Reply>(dumped(openapi_of(routes, list(), !settings_.access.keys.empty())));
}

std::unique_ptr<Answer> Server::ready(const Call&) {
  if (draining_) throw HttpError(503, "the server is shutting down", "shutting_down");
  const ServedModels served = this->served();
  if (served.empty()) throw HttpError(503, "no model is served yet", "model_loading");
  for (const auto& [name, one] : served) {
    if (!one->ready()) throw HttpError(503, "the model " + name + " is loading", "model_loading");
    if (const int64_t rank = one->statistics().failed_rank; rank >= 0)
      throw HttpError(503, "rank " + std::to_string(rank) + " of the model " + name + " has failed: start the server again", "rank_failed");
  }
  return std::make_unique<Reply>("{\"status\":\"ready\"}");
}

Json Server::list() const {
  const ServedModels served = this->served();
  Json out = Json::array();
  for (const auto& [name, one] : served) {
    Json row = {{"id", name},          {"object", "model"}, {"created", 0},
                {"owned_by", "plait"}, {"root", name},      {"parent", nullptr}};
    const bool ready = one->ready();
    if (ready) row["max_model_len"] = one->context();
    out.push_back(row);
    if (!ready) continue;
    for (const std::string& adapter : one->adapters()) {
      row["id"] = adapter;
      row["parent"] = name;
      out.push_back(row);
    }
  }
  return out;
}

/// RFC 3986, 2.1. What is no such triple stays.
static std::string percent_decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* end = text.data() + std::min(i + 3, text.size());
    if (text[i] != '%' || i + 2 >= text.size() ||
        std::from_chars(text.data() + i + 1, end, byte, 16).ptr != text.data() + i + 3) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::unique_ptr<Answer> Server::models(const Call& call) {
  const Json all = list();
  constexpr std::string_view below = "/v1/models/";
  if (call.path.size() <= below.size()) return std::make_unique<Reply>(dumped({{"object", "list"}, {"data", all}}));
  const std::string name = percent_decoded(call.path.substr(below.size()));
  for (const Json& one : all)
    if (one["id"].get_ref<const std::string&>() == name) return std::make_unique<Reply>(dumped(one));
  throw HttpError(404, "the model \"" + name + "\" does not exist; /v1/models lists those that do", "model_not_found",
                  "model");
}

std::unique_ptr<Answer> Server::ranks(const Call&) {
  Json out = Json::object();
  for (const auto& [name, one] : served())
    if (one->ready()) out[name] = one->ranks();
  return std::make_unique<Reply>(dumped(out));
}

static double as_number(int64_t value) { return static_cast<double>(value); }

std::unique_ptr<Answer> Server::metrics(const Call&) {
  std::string out = meter_.text();
  const ServedModels served = this->served();
  const ServerStats own = stats();
  write_metric(out, "plait_open_connections", "gauge", "Connections of clients.",
               static_cast<double>(own.connections));
  if (own.certificate_expires)
    write_metric(out, "plait_certificate_expires_seconds", "gauge", "Unix time until which the certificate is valid.",
                 as_number(own.certificate_expires));
  write_metric(out, "plait_open_calls", "gauge", "Calls that are not answered yet.", static_cast<double>(own.calls));
  using Stats = plait_generator_stats;
  struct Row {
    const char *name, *type, *help;
    double (*value)(const Stats&);
  };
  constexpr Row rows[] = {
      {"plait_requests_running", "gauge", "Samples in the running batch.",
       [](const Stats& stats) { return as_number(stats.running); }},
      {"plait_requests_waiting", "gauge", "Requests in the queue.",
       [](const Stats& stats) { return as_number(stats.waiting); }},
      {"plait_requests_preempted_total", "counter", "Requests that lost their pages for a while.",
       [](const Stats& stats) { return as_number(stats.preempted); }},
      {"plait_steps_total", "counter", "Steps of the engine.",
       [](const Stats& stats) { return as_number(stats.steps); }},
      {"plait_cache_pages", "gauge", "Pages of the cache.",
       [](const Stats& stats) { return as_number(stats.pages); }},
      {"plait_cache_pages_free", "gauge", "Of these, free.",
       [](const Stats& stats) { return as_number(stats.pages_free); }},
      {"plait_native_bytes", "gauge", "Weights, cache and workspace.",
       [](const Stats& stats) { return as_number(stats.native_bytes); }},
      {"plait_masks_total", "counter", "Masks of structured output.",
       [](const Stats& stats) { return as_number(stats.masks); }},
      {"plait_mask_seconds_total", "counter", "Computing masks.",
       [](const Stats& stats) { return stats.mask_seconds; }},
      {"plait_mask_wait_seconds_total", "counter", "Of these, what steps waited for.",
       [](const Stats& stats) { return stats.mask_wait_seconds; }},
      {"plait_waiting_prompt_tokens", "gauge", "Tokens of the prompts in the queue.",
       [](const Stats& stats) { return as_number(stats.waiting_tokens); }},
      {"plait_expected_wait_seconds", "gauge", "In the queue, of a request that comes now.",
       [](const Stats& stats) { return stats.expected_wait_seconds; }},
      {"plait_step_seconds_total", "counter", "Steps, to their logits.",
       [](const Stats& stats) { return stats.step_seconds; }},
      {"plait_sampling_seconds_total", "counter", "Choosing tokens on the host, after steps.",
       [](const Stats& stats) { return stats.sampling_seconds; }},
  };
  const auto label = [](const std::string& name) {
    std::string out = "model_name=\"";
    for (const char letter : name) out += letter == '"' || letter == '\\' || letter == '\n' ? '_' : letter;
    return out + "\"";
  };
  std::vector<std::pair<std::string, Stats>> models;  // by label
  std::map<std::string, std::string> histograms;      // all lines of one stand together
  for (const auto& [name, one] : served) {
    if (!one->ready()) continue;
    models.emplace_back(label(name), one->statistics());
    const Json all = one->histograms();
    for (const auto& [what, values] : all.items()) {
      std::string& lines = histograms[what];
      write_histogram(lines, "plait_" + what, lines.empty() ? "histogram" : "", values.at("help").get<std::string>(),
                      values.at("bounds").get<std::vector<double>>(), values.at("counts").get<std::vector<int64_t>>(),
                      values.at("sum").get<double>(), label(name));
    }
  }
  for (const Row& row : rows)
    for (const auto& [labels, stats] : models)
      write_metric(out, row.name, &labels == &models[0].first ? row.type : "", row.help, row.value(stats), labels);
  for (const auto& [what, lines] : histograms) out += lines;
  return std::make_unique<Reply>(std::move(out), 200, "text/plain; version=0.0.4; charset=utf-8");
}

std::unique_ptr<Answer> Server::chat(const Call& call) { return chat_completions(*this, call.body); }
std::unique_ptr<Answer> Server::respond(const Call& call) { return responses(*this, call.body); }
std::unique_ptr<Answer> Server::message(const Call& call) { return http::messages(*this, call.body); }
std::unique_ptr<Answer> Server::count(const Call& call) { return count_tokens(*this, call.body); }
std::unique_ptr<Answer> Server::complete(const Call& call) { return completions(*this, call.body); }
std::unique_ptr<Answer> Server::embed(const Call& call) { return embeddings(*this, call.body); }
std::unique_ptr<Answer> Server::encode(const Call& call) { return tokenize(*this, call.body); }
std::unique_ptr<Answer> Server::decode(const Call& call) { return detokenize(*this, call.body); }

/// The path without links; "": there is nothing. Throws HttpError(503) if the system does not tell.
static std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr), &std::free);
  if (found) return found.get();
  if (errno == ENOENT || errno == ENOTDIR) return "";
  throw no_memory("the adapters' directory cannot be looked at: " + std::string(std::strerror(errno)));
}

/// A directory below `root`, which no link or ".." leads out of.
static std::string below(const std::string& root, const std::string& path) {
  if (root.empty())
    throw HttpError(403, "adapters are not loaded at run time: the server was started without a directory for them",
                    "not_allowed");
  const std::string base = real_path(root), found = base.empty() ? base : real_path(base + "/" + path);
  if (!found.starts_with(base + "/"))
    throw HttpError(404, "there is no adapter \"" + path + "\"", "not_found", "lora_path");
  return found;
}

std::unique_ptr<Answer> Server::load_adapter(const Call& call) {
  const Json json = parse_body(call.body);
  const Fields body(json);
  const std::string name = body.required_text("lora_name");
  const std::string directory = below(settings_.adapter_dir, body.required_text("lora_path"));
  std::shared_ptr<const Served> to;
  if (const auto model = body.text("model")) {
    to = named(*model).served;
  } else {
    std::lock_guard lock(mutex_);
    if (served_.size() != 1) reject("model", "is missing: several models are served");
    to = served_.begin()->second;
  }
  plait_api::check(plait_generator_add_adapter(to->generator(), name.c_str(), directory.c_str()));
  return std::make_unique<Reply>(dumped({{"status", "loaded"}, {"id", name}}));
}

std::unique_ptr<Answer> Server::unload_adapter(const Call& call) {
  const Json json = parse_body(call.body);
  const Named found = named(Fields(json).required_text("lora_name"));
  if (found.adapter.empty()) reject("lora_name", "is a model, not an adapter");
  plait_api::check(plait_generator_remove_adapter(found.served->generator(), found.adapter.c_str()));
  return std::make_unique<Reply>(dumped({{"status", "unloaded"}, {"id", found.adapter}}));
}

}  // namespace plait::http

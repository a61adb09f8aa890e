// plait serve: an HTTP server for OpenAI's clients.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <thread>

#include "bindings/cli/common.h"
#include "bindings/server/plait_server.h"

namespace plait::cli {
namespace {

/// Owns a server.
class Server : public plait_api::Handle<plait_server, plait_server_release> {
 public:
  explicit Server(const plait_api::Options& options)
      : Handle(plait_api::made<plait_server>(
            [&](plait_server** out) { return plait_server_create(options.get(), out); })) {}
  std::string address() const {
    return plait_api::tensor([&](plait_tensor** out) { return plait_server_address(handle_, out); }).text();
  }
};

/// "models/gemma-3-270m/" is served as "gemma-3-270m", "x/llama.Q4_0.gguf" as "llama.Q4_0".
std::string name_of(const std::string& path) {
  const std::filesystem::path given = std::filesystem::path(path).lexically_normal();
  const std::filesystem::path last = given.has_filename() ? given : given.parent_path();
  const std::string ending = last.extension().string();
  return (ending == ".onnx" || ending == ".gguf" ? last.stem() : last.filename()).string();
}

/// A server's option. "@FILE" is a key on each line of a file.
void set_server_option(plait_api::Options& options, const std::string& key, const std::string& value) {
  if (key != "api_key" || !value.starts_with("@")) return set_option(options, key, value);
  std::istringstream lines(read_all(value.substr(1)));
  bool any = false;
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty()) continue;
    set_option(options, key, line);
    any = true;
  }
  if (!any) throw UsageError("there is no key in " + value.substr(1));
}

/// --host and --port; an address of IPv6 is in brackets.
std::string address_of(const ServeArguments& arguments) {
  std::string host = arguments.host.empty() ? "127.0.0.1" : arguments.host;
  if (host.find(':') != std::string::npos && host.front() != '[') host = "[" + host + "]";
  return host + ":" + std::to_string(arguments.port < 0 ? 8080 : arguments.port);
}

struct Served {
  std::string name;
  plait_api::Model model;
  plait_api::Generator generator;
  bool ready = false;
};

/// "NAME=MODEL", or a model by its own name.
std::pair<std::string, std::string> named(const std::string& given) {
  const size_t at = given.find('=');
  const bool has_name = at != std::string::npos && at > 0 && given.find('/') > at;
  return has_name ? std::pair(given.substr(0, at), given.substr(at + 1)) : std::pair(name_of(given), given);
}

/// Of each model, without the adapters, which are the first one's.
OptionSets options_of_models(const ServeArguments& arguments) {
  OptionSets out = option_sets(arguments, "generator");
  out.rest.set("queue", arguments.queue);
  const auto of_grammars = [](const std::string& option) { return option.starts_with("grammars="); };
  if (std::none_of(arguments.options.begin(), arguments.options.end(), of_grammars)) out.rest.set("grammars", "true");
  for (const auto& [key, value] : arguments.request) set_option(out.rest, key, value);
  return out;
}

/// An expired certificate is used: clients decide.
void warn_of_certificate(plait_server* server) {
  plait_server_stats stats{sizeof stats};
  plait_api::check(plait_server_statistics(server, &stats));
  const std::time_t expires = stats.certificate_expires;
  if (expires == 0 || expires > std::time(nullptr)) return;
  std::tm utc{};
  char text[32] = "";
  if (gmtime_r(&expires, &utc)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
  std::fprintf(stderr, "warning: the certificate expired at %s\n", text);
}

/// Returns when the program is to end; throws what ended the loading.
void wait_for_end(plait_server* server, std::vector<Served>& served, const std::string& address) {
  while (!interrupted()) {
    plait_server_stats stats{sizeof stats};
    plait_api::check(plait_server_statistics(server, &stats));  // fails once a fault has ended the server's thread
    for (Served& one : served)
      if (!one.ready && (one.ready = one.generator.wait(0)))
        std::fprintf(stderr, "ready: %s at %s/v1 (Ctrl-C ends it)\n", one.name.c_str(), address.c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(patience_ms));
  }
}

}  // namespace

int serve(const ServeArguments& arguments) {
  plait_api::Options http;
  for (const auto& [key, value] : arguments.server) set_server_option(http, key, value);
  if (!arguments.host.empty() || arguments.port >= 0) http.set("address", address_of(arguments));

  OptionSets options = options_of_models(arguments);
  for (const std::string& adapter : arguments.adapters) options.rest.set("adapters", adapter);
  plait_api::World world = open_world(arguments, options);
  if (world && !arguments.also.empty())
    throw UsageError("--also is for one process: those of a world serve one model", "start a server for each model");
  if (is_worker(world)) return world.serve(), exit_ok;
  catch_interrupt();
  const Server server(http);
  const std::string address = server.address();
  warn_of_certificate(server.get());
  std::fprintf(stderr, "listening at %s\n", address.c_str());
  std::vector<Served> served;
  const auto add = [&](const std::string& name, const std::string& path, OptionSets of_model) {
    of_model.model.set("background", "true");
    plait_api::Model model(path, of_model.model);
    plait_api::Generator generator = make_on<plait_api::Generator>(world, model, of_model.rest);
    plait_api::check(plait_server_add(server.get(), name.c_str(), model.get(), generator.get()));
    served.push_back({name, std::move(model), std::move(generator)});
  };
  add(arguments.name.empty() ? name_of(arguments.model) : arguments.name, arguments.model, std::move(options));
  for (const std::string& also : arguments.also) {
    const auto [name, path] = named(also);
    add(name, path, options_of_models(arguments));
  }
  wait_for_end(server.get(), served, address);
  std::fprintf(stderr, "ending: calls have %lld s to be answered\n", static_cast<long long>(arguments.drain_s));
  const plait_status drained = plait_server_drain(server.get(), 1000 * arguments.drain_s);
  if (drained != PLAIT_TIMEOUT) plait_api::check(drained);
  return exit_ok;
}

}  // namespace plait::cli

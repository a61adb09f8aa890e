// The C interface of the server: handles, options, errors.
#include "bindings/server/plait_server.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "serving/http/server.h"

namespace plait::http {
namespace {

/// Live servers by handle, which is a number, so that one that was released is recognised.
struct Table {
  std::mutex mutex;
  uint64_t last = 0;
  std::map<uint64_t, std::shared_ptr<Server>> servers;
};

/// Never destroyed, so that a server that a host has not released at exit joins no threads from there.
Table& table() {
  static Table& instance = *new Table;
  return instance;
}

plait_status fail(plait_status status, const char* message, const char* hint = "") {
  return plait_fail(status, message, hint);
}

/// No exception leaves the library.
template <class Body>
plait_status guarded(Body&& body) {
  try {
    return body();
  } catch (const plait_api::Failure& failure) {
    return fail(failure.status(), failure.what(), failure.hint().c_str());
  } catch (const std::bad_alloc&) {
    return fail(PLAIT_OUT_OF_MEMORY, "the server has no memory");
  } catch (const std::exception& error) {
    return fail(PLAIT_INTERNAL, error.what());
  }
}

template <class Body>
plait_status with(plait_server* handle, Body&& body) {
  return guarded([&]() -> plait_status {
    if (!handle) return fail(PLAIT_INVALID_ARGUMENT, "the server is NULL");
    std::shared_ptr<Server> server;
    {
      Table& all = table();
      std::lock_guard lock(all.mutex);
      const auto number = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
      const auto found = all.servers.find(number);
      if (found != all.servers.end()) server = found->second;
      else if (number == 0 || number > all.last)
        return fail(PLAIT_INVALID_ARGUMENT, "what was passed as server is no handle of that kind");
    }
    if (!server) return fail(PLAIT_CLOSED, "the server was released before");
    return body(*server);
  });
}

/// The options' values, or their defaults.
class Values {
 public:
  explicit Values(plait_options* options)
      : values_(Json::parse(plait_api::tensor([&](plait_tensor** out) {
                              return plait_options_values(options, "server", out);
                            }).text())) {}
  std::string text(const char* key) const { return values_.at(key).get<std::string>(); }
  bool boolean(const char* key) const { return values_.at(key).get<bool>(); }
  int64_t integer(const char* key) const { return values_.at(key).get<int64_t>(); }
  std::vector<std::string> texts(const char* key) const { return values_.at(key).get<std::vector<std::string>>(); }

 private:
  const Json values_;
};

ServerSettings settings_of(plait_options* options) {
  const Values values(options);
  ServerSettings out;
  out.transport.address = values.text("address");
  out.transport.max_body = values.integer("max_body");
  out.transport.max_head = values.integer("max_head");
  out.transport.max_held = values.integer("max_bodies");
  out.transport.max_connections = values.integer("max_connections");
  out.transport.head_ms = values.integer("idle_ms");
  out.transport.body_ms = values.integer("body_ms");
  out.transport.write_ms = values.integer("write_ms");
  out.transport.certificate = values.text("tls_certificate");
  out.transport.key = values.text("tls_key");
  out.queue = values.integer("calls");
  out.adapter_dir = values.text("adapter_dir");
  out.page = !values.boolean("no_page");
  out.access.keys = values.texts("api_key");
  out.access.origin = values.text("cors_origin");
  const std::string_view address = out.transport.address;
  for (const char* own : {"127.", "localhost:", "[::1]"}) out.access.loopback |= address.starts_with(own);
  return out;
}

}  // namespace
}  // namespace plait::http

using namespace plait::http;

plait_status plait_server_create(plait_options* options, plait_server** out) {
  if (out) *out = nullptr;
  return guarded([&]() -> plait_status {
    if (!out) return fail(PLAIT_INVALID_ARGUMENT, "parameter out is NULL");
    const ServerSettings settings = settings_of(options);
    const bool certificate = !settings.transport.certificate.empty(), key = !settings.transport.key.empty();
    if (certificate != key)
      return fail(PLAIT_INVALID_ARGUMENT, certificate ? "option tls_key is missing" : "option tls_certificate is missing",
                  "TLS needs both, as files of PEM");
    std::shared_ptr<Server> made;
    try {
      made = std::make_shared<Server>(settings);
    } catch (const IdentityError& error) {
      return fail(PLAIT_INVALID_ARGUMENT, error.what(), "options tls_certificate and tls_key are files of PEM");
    } catch (const NoThread& error) {
      return fail(PLAIT_OUT_OF_MEMORY, error.what(), "raise the limit of processes (ulimit -u, or the container's)");
    } catch (const std::runtime_error& error) {
      return fail(PLAIT_IO, error.what(), "choose another port, or 0 for any free one");
    }
    Table& all = table();
    std::lock_guard lock(all.mutex);
    all.servers.emplace(++all.last, std::move(made));
    *out = reinterpret_cast<plait_server*>(static_cast<uintptr_t>(all.last));
    return PLAIT_OK;
  });
}

plait_status plait_server_add(plait_server* server, const char* name, plait_model* model,
                              plait_generator* generator) {
  return with(server, [&](Server& own) {
    if (!name || !*name) return fail(PLAIT_INVALID_ARGUMENT, "parameter name is NULL or empty");
    double progress = 0;  // looks at the handles
    plait_api::check(plait_model_progress(model, &progress));
    plait_api::check(plait_generator_progress(generator, &progress));
    try {
      own.add(name, model, generator);
    } catch (const std::runtime_error& error) {
      return fail(PLAIT_INVALID_ARGUMENT, error.what());
    }
    return PLAIT_OK;
  });
}

plait_status plait_server_address(plait_server* server, plait_tensor** text) {
  if (text) *text = nullptr;
  return with(server, [&](Server& own) {
    if (!text) return fail(PLAIT_INVALID_ARGUMENT, "parameter text is NULL");
    const std::string address = own.address();
    return plait_tensor_of_text(address.data(), static_cast<int64_t>(address.size()), text);
  });
}

plait_status plait_server_drain(plait_server* server, int64_t timeout_ms) {
  return with(server, [&](Server& own) {
    constexpr int64_t century = int64_t{100} * 365 * 24 * 3600 * 1000;
    if (own.drain(std::chrono::milliseconds(std::min(timeout_ms, century)))) return PLAIT_OK;
    return fail(PLAIT_TIMEOUT, "calls were left when the time was over: they were ended");
  });
}

plait_status plait_server_statistics(plait_server* server, plait_server_stats* out) {
  return with(server, [&](Server& own) {
    if (!out) return fail(PLAIT_INVALID_ARGUMENT, "parameter out is NULL");
    if (out->struct_size < static_cast<int64_t>(sizeof *out))
      return fail(PLAIT_INVALID_ARGUMENT, "struct_size is too small",
                  "set struct_size to sizeof the struct before the call");
    const ServerStats stats = own.stats();
    *out = {out->struct_size, stats.connections, stats.calls, stats.answered, stats.cancelled, stats.certificate_expires};
    return PLAIT_OK;
  });
}

plait_status plait_server_release(plait_server* server) {
  if (!server) return PLAIT_OK;
  std::shared_ptr<Server> ended;
  const plait_status status = with(server, [&](Server&) {
    Table& all = table();
    std::lock_guard lock(all.mutex);
    const auto found = all.servers.find(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(server)));
    if (found == all.servers.end()) return fail(PLAIT_CLOSED, "the server was released before");
    ended = std::move(found->second);
    all.servers.erase(found);
    return PLAIT_OK;
  });
  return status;
}

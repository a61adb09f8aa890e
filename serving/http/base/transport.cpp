#include "serving/http/base/transport.h"

#include "serving/http/base/http_abi.h"

namespace plait::http {
namespace {

plait_http_view view(std::string_view text) { return {text.data(), text.size()}; }
std::string_view text(plait_http_view view) { return {view.data, view.size}; }

Host& host_of(void* own) { return *static_cast<Host*>(own); }

void arrived(void* own, uint64_t call, const plait_http_request* request) {
  Head head{text(request->method), text(request->path), text(request->query), text(request->body), {}};
  try {
    for (size_t i = 0; i < request->field_count; ++i)
      head.fields.emplace_back(text(request->fields[i].name), text(request->fields[i].value));
  } catch (...) {  // no exception may go through the crate
    return host_of(own).refused(call);
  }
  host_of(own).arrived(call, head);
}

int32_t take(void* own, uint64_t call, plait_http_answer* answer) {
  Part part;
  const Taken taken = host_of(own).take(call, part);
  *answer = {part.status, view(part.content_type), view(part.fields), view(part.data)};
  return static_cast<int32_t>(taken);
}

void dropped(void* own, uint64_t call) { host_of(own).dropped(call); }

}  // namespace

Transport::Transport(const TransportSettings& settings, Host& host) : host_(host) {
  const auto size = [](int64_t number) { return static_cast<uint64_t>(number); };
  const plait_http_settings given{view(settings.address),  size(settings.max_body),        size(settings.max_head),
                                  size(settings.max_held), size(settings.max_connections), size(settings.head_ms),
                                  size(settings.body_ms),  size(settings.write_ms),        view(settings.certificate),
                                  view(settings.key)};
  const plait_http_host functions{&host_, arrived, take, dropped};
  plait_http_text failure{};
  const int32_t started = plait_http_start(&given, &functions, &server_, &failure);
  if (started == plait_http_started) return;
  const std::string why(failure.data, failure.size);
  plait_http_text_release(failure);
  if (started == plait_http_no_identity) throw IdentityError(why);
  throw std::runtime_error("cannot listen on " + settings.address + ": " + why);
}

Transport::~Transport() { plait_http_stop(server_); }

uint16_t Transport::port() const { return plait_http_port(server_); }
bool Transport::runs() const { return plait_http_runs(server_); }
int64_t Transport::connections() const { return static_cast<int64_t>(plait_http_connections(server_)); }
int64_t Transport::certificate_expires() const { return plait_http_expires(server_); }
void Transport::wake(uint64_t call) const { plait_http_wake(server_, call); }
void Transport::close() const { plait_http_close(server_); }

}  // namespace plait::http

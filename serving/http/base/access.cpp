#include "serving/http/base/access.h"

#include <algorithm>
#include <cctype>

#include "serving/http/base/failure.h"

namespace plait::http {
namespace {

/// In a time that depends on the given key's length only.
bool same(std::string_view given, std::string_view key) {
  unsigned different = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i)
    different |=
        static_cast<unsigned char>(given[i]) ^ (key.empty() ? 1u : static_cast<unsigned char>(key[i % key.size()]));
  return different == 0;
}

}  // namespace

std::string_view field_of(const Head& head, std::string_view name) {
  for (const auto& [own, value] : head.fields)
    if (own == name) return value;
  return {};
}

void Access::check_host(const Head& head) const {
  if (!settings_.loopback) return;
  std::string_view host = field_of(head, "host");
  if (host.empty()) return;  // HTTP/1.0, and HTTP/2, where it is part of the address
  const bool bracketed = host.front() == '[';
  const size_t end = bracketed ? host.find(']') + 1 : host.find(':');
  std::string name(host.substr(0, end));  // in any case (RFC 9110, section 4.2.3), perhaps with the root's dot
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.ends_with('.')) name.pop_back();
  if (name != "localhost" && name != "[::1]" && !name.starts_with("127."))
    throw HttpError(403, "the server answers on this machine's own names only, not as " + std::string(host),
                    "wrong_host");
}

void Access::check_key(const Head& head) const {
  if (settings_.keys.empty()) return;
  std::string_view given = field_of(head, "authorization");
  constexpr std::string_view bearer = "bearer ";  // in any case (RFC 9110, section 11.1)
  if (std::ranges::equal(given.substr(0, bearer.size()), bearer, {}, [](unsigned char c) { return std::tolower(c); }))
    given.remove_prefix(bearer.size());
  else given = field_of(head, "x-api-key");
  bool known = false;
  for (const std::string& key : settings_.keys) known |= same(given, key);
  if (!known)
    throw HttpError(401, given.empty() ? "an API key is missing" : "the API key is wrong", "invalid_api_key");
}

std::string Access::fields(const Head& head) const {
  if (settings_.origin.empty()) return {};
  // Clients in browsers send headers of their own (x-stainless-*, anthropic-version, ...): who may call may send those that it asks for.
  std::string headers(field_of(head, "access-control-request-headers"));
  constexpr size_t longest = 4096;
  const bool names = headers.size() <= longest && std::ranges::all_of(headers, [](unsigned char c) {
                       return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
                     });
  if (headers.empty() || !names)
    headers =
        "authorization, content-type, x-api-key, x-request-id, anthropic-version, anthropic-beta, "
        "anthropic-dangerous-direct-browser-access, openai-organization, openai-project, openai-beta";
  return "access-control-allow-origin: " + settings_.origin + (settings_.origin == "*" ? "" : "\nvary: origin") +
         "\naccess-control-allow-headers: " + headers +
         "\naccess-control-allow-methods: GET, HEAD, POST, OPTIONS\n"
         "access-control-expose-headers: x-request-id, retry-after, retry-after-ms\n"
         "access-control-max-age: 600\n";
}

}  // namespace plait::http

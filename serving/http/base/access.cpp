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
  host = host.substr(0, end);
  if (host != "localhost" && host != "127.0.0.1" && host != "[::1]" && !host.starts_with("127."))
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

std::string Access::fields() const {
  if (settings_.origin.empty()) return {};
  return "access-control-allow-origin: " + settings_.origin +
         "\naccess-control-allow-headers: authorization, content-type, x-api-key\n" +
         "access-control-allow-methods: GET, POST, OPTIONS\n";
}

}  // namespace plait::http

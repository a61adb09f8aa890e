#pragma once
// Who may call: API keys, origins of pages, names of this machine.
#include <string>
#include <vector>

#include "serving/http/base/transport.h"

namespace plait::http {

struct AccessSettings {
  std::vector<std::string> keys;  ///< none: everyone may
  std::string origin;             ///< whose pages may call (CORS): an origin, "*", or "" for none
  bool loopback =
      false;  ///< only names of this machine in "host", so that no page of elsewhere gets here by DNS rebinding
};

/// Thread-safe: it does not change.
class Access {
 public:
  explicit Access(AccessSettings settings) : settings_(std::move(settings)) {}

  /// Throws HttpError(403) for a foreign name of this machine.
  void check_host(const Head& head) const;
  /// Throws HttpError(401) without one of the keys: "Authorization: Bearer KEY", or "x-api-key: KEY".
  void check_key(const Head& head) const;
  /// Lines for every answer, and for the question before a call (OPTIONS).
  std::string fields(const Head& head) const;

 private:
  const AccessSettings settings_;
};

/// The value of a header; "" if there is none.
std::string_view field_of(const Head& head, std::string_view name);

}  // namespace plait::http

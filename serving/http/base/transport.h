#pragma once
// The HTTP library, as C++: who listens, and what it asks of the server.
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct plait_http;

namespace plait::http {

/// A request that has come in full. Views are valid while it is handed over.
struct Head {
  std::string_view method, path, query, body;
  std::vector<std::pair<std::string_view, std::string_view>> fields;  ///< names in lower case
};

/// A part of an answer. Views must stay valid until the next part of that call is asked for, or it is dropped.
struct Part {
  int32_t status = 200;
  std::string_view content_type, fields, data;
};
enum class Taken : int32_t { wait = 0, more = 1, end = 2 };

/// Called on the transport's thread, where nothing may block.
class Host {
 public:
  virtual ~Host() = default;
  virtual void arrived(uint64_t call, const Head& head) noexcept = 0;
  /// A call came, and there was no memory to read its head.
  virtual void refused(uint64_t call) noexcept = 0;
  virtual Taken take(uint64_t call, Part& part) noexcept = 0;
  virtual void dropped(uint64_t call) noexcept = 0;
};

struct TransportSettings {
  std::string address;  ///< "HOST:PORT" or "unix:PATH"
  int64_t max_body = 8 << 20, max_head = 64 << 10, max_held = 256 << 20, max_connections = 4096;
  int64_t head_ms = 75000, body_ms = 30000, write_ms = 60000;
  std::string certificate, key;  ///< files of PEM, for TLS; "": plain
};

/// The certificate or the key is of no use.
class IdentityError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The system did not start a thread.
class NoThread : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Listens from its creation on. Thread-safe.
class Transport {
 public:
  /// Throws IdentityError, or std::runtime_error if the address cannot be listened on.
  Transport(const TransportSettings& settings, Host& host);
  ~Transport();
  Transport(const Transport&) = delete;

  uint16_t port() const;
  /// Whether it still serves; false: a fault ended its thread.
  bool runs() const;
  int64_t connections() const;
  /// Unix seconds until which the certificate is valid; 0 without TLS.
  int64_t certificate_expires() const;
  void wake(uint64_t call) const;
  void close() const;

 private:
  Host& host_;
  plait_http* server_ = nullptr;
};

}  // namespace plait::http

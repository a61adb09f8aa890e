#pragma once
// The C ABI of the Rust crate in serving/http/rust: HTTP as a transport. Only for transport.cpp.
//
// The crate runs on one thread of its own, and calls the host's three functions there; they must return soon (well under a
// millisecond), and must not call plait_http_stop. Functions below may be called from any thread.
#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct plait_http plait_http;

/// Memory of the side that passes it; data may be null if size is 0.
typedef struct plait_http_view {
  const char* data;
  size_t size;
} plait_http_view;

typedef struct plait_http_field {
  plait_http_view name, value;  ///< names in lower case
} plait_http_field;

/// A request that has come in full, within the limits. Valid during the call.
typedef struct plait_http_request {
  plait_http_view method, path, query, body;
  const plait_http_field* fields;
  size_t field_count;
} plait_http_request;

/// A part of an answer; views are valid until the host is asked for that call's next part, or told that it is dropped.
typedef struct plait_http_answer {
  int32_t status;  ///< this, the type and the fields count in the first part only
  plait_http_view content_type;
  plait_http_view fields;  ///< lines "name: value"
  plait_http_view data;
} plait_http_answer;

enum { plait_http_wait = 0, plait_http_more = 1, plait_http_end = 2 };

typedef struct plait_http_host {
  void* own;
  void (*arrived)(void* own, uint64_t call, const plait_http_request* request);
  /// Fills the next part. plait_http_wait: there is none yet, plait_http_wake follows; plait_http_end: it is the last.
  /// Asked for only while the client's socket takes bytes, so that what a slow client does not read stays with the host.
  int32_t (*take)(void* own, uint64_t call, plait_http_answer* answer);
  /// Once for each call: it was answered, or its client has gone.
  void (*dropped)(void* own, uint64_t call);
} plait_http_host;

typedef struct plait_http_settings {
  plait_http_view address;              ///< "HOST:PORT", port 0: any free one; or "unix:PATH"
  uint64_t max_body, max_head;          ///< bytes
  uint64_t max_held;                    ///< bytes of all bodies at once
  uint64_t max_connections;             ///< more are closed at once
  uint64_t head_ms, body_ms, write_ms;  ///< to send a head (also: idle between requests), a body; to take any bytes
  plait_http_view certificate, key;     ///< files of PEM, for TLS with HTTP/2 by ALPN; empty: plain
} plait_http_settings;

/// Memory of the crate.
typedef struct plait_http_text {
  char* data;
  size_t size;
} plait_http_text;

enum { plait_http_started = 0, plait_http_not_listening = 1, plait_http_no_identity = 2 };

/// If it does not listen: why, and a message; plait_http_no_identity: of the certificate or the key, with the file.
int32_t plait_http_start(const plait_http_settings* settings, const plait_http_host* host, plait_http** out,
                         plait_http_text* failure);
void plait_http_text_release(plait_http_text text);
uint16_t plait_http_port(const plait_http* server);
/// Whether its thread is there. A fault of the server ends that, and no call is answered any more.
bool plait_http_runs(const plait_http* server);
uint64_t plait_http_connections(const plait_http* server);
/// Unix seconds until which the certificate is valid, which is read again when its files change; 0 without TLS.
int64_t plait_http_expires(const plait_http* server);
/// There is more to take of that call; one that is gone is ignored.
void plait_http_wake(const plait_http* server, uint64_t call);
/// Listens no longer; connections end after their current answers.
void plait_http_close(const plait_http* server);
/// Drops all calls, joins the thread and frees the server. Not from the host's functions.
void plait_http_stop(plait_http* server);

}  // extern "C"

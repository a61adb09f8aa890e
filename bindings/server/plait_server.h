/* Plait's HTTP server: the wire of OpenAI's clients in front of generators of plait.h, inside the host's process.
 *
 *   plait_server* server;
 *   plait_server_create(options, &server);
 *   plait_server_add(server, "gemma", model, generator);
 *
 * Listens from plait_server_create on, and answers 503 until the models are loaded. The host may use the generators
 * itself; its requests share steps with the server's. Functions return a plait_status and set plait_last_error, as
 * those of plait.h; all are thread-safe. Link with -lplait_server -lplait. */
#ifndef PLAIT_SERVER_H
#define PLAIT_SERVER_H

#include "plait.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plait_server plait_server;

/* Options for "server" of plait_options_describe; NULL: the defaults. INVALID_ARGUMENT; IO if the address cannot be
 * listened on. With tls_certificate and tls_key it speaks TLS, and HTTP/2 to who asks for it; files that were replaced
 * are read again within seconds. INVALID_ARGUMENT, with the file and what is wrong, if they are of no use. */
PLAIT_API plait_status plait_server_create(plait_options* options, plait_server** out);
/* Serves a model, which may still be loading, under a name. Both stay the host's, to be released after the server.
 * INVALID_ARGUMENT if the name is taken. */
PLAIT_API plait_status plait_server_add(plait_server* server, const char* name, plait_model* model,
                                        plait_generator* generator);
/* "http://127.0.0.1:8080" or "https://...", with the port that it listens on; or "unix:PATH". */
PLAIT_API plait_status plait_server_address(plait_server* server, plait_tensor** text);
/* Takes no more connections, and waits until all calls are answered; TIMEOUT after that time (negative: no limit): the
 * rest are ended with an error. */
PLAIT_API plait_status plait_server_drain(plait_server* server, int64_t timeout_ms);

typedef struct plait_server_stats {
  int64_t struct_size;
  int64_t connections;         /* of clients, open */
  int64_t calls;               /* that are not answered yet */
  int64_t answered, cancelled; /* since the start; cancelled: the client left first */
  int64_t certificate_expires; /* Unix time in seconds until which tls_certificate is valid; 0: no TLS */
} plait_server_stats;

PLAIT_API plait_status plait_server_statistics(plait_server* server, plait_server_stats* out);
/* Ends all calls. */
PLAIT_API plait_status plait_server_release(plait_server* server);

#ifdef __cplusplus
}
#endif

#endif

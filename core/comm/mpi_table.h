/* The MPI functions that core/comm uses, as a table exported by a plug-in: libplait.so does not link MPI and works
 * with any MPI the plug-in was built for. Plain C. Additions go at the end with a higher version; the rest stays. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAIT_MPI_VERSION 2
#define PLAIT_MPI_ENTRY   "plait_mpi_get_table"

typedef struct plait_mpi_world plait_mpi_world;
typedef struct plait_mpi_request plait_mpi_request;

/* Functions that return int return 0, or MPI's error code for error_text. They never wait for another process, except
 * open and close. Calls on one world are serialised. */
typedef struct plait_mpi_table {
  int32_t version;

  /* 1 if MPI is running already; its calls may then have to come from the host's own thread. */
  int32_t (*running)(void);

  /* Collective over MPI_COMM_WORLD. Starts MPI if needed (with MPI_THREAD_SERIALIZED: calls may come from any
   * thread), and makes its own communicator, whose errors are returned. */
  int (*open)(plait_mpi_world** world, int32_t* rank, int32_t* size, int32_t* highest_tag, int32_t* started);
  /* Frees the world; finalize: ends MPI if this table started it and no other world is open. Do not finalize after a
   * process was lost: MPI would wait for it. */
  void (*close)(plait_mpi_world* world, int32_t finalize);

  /* Starts a send; `data` must live until `test` reports completion. */
  int (*send)(plait_mpi_world* world, const void* data, int64_t bytes, int32_t to, int32_t tag,
              plait_mpi_request** request);
  /* Checks for a message. from: -1 for any. */
  int (*probe)(plait_mpi_world* world, int32_t from, int32_t tag, int32_t* found, int32_t* found_from,
               int64_t* bytes);
  /* Starts to receive a message found by `probe`. */
  int (*receive)(plait_mpi_world* world, void* data, int64_t bytes, int32_t from, int32_t tag,
                 plait_mpi_request** request);
  /* Sets done to 1 when complete; the request is then freed. */
  int (*test)(plait_mpi_world* world, plait_mpi_request* request, int32_t* done);

  void (*error_text)(int code, char* text, int32_t text_bytes);
} plait_mpi_table;

/* The only symbol of the plug-in, PLAIT_MPI_ENTRY. */
typedef const plait_mpi_table* plait_mpi_entry(void);

#ifdef __cplusplus
}
#endif

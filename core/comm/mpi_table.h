/* What core/comm needs of MPI, as a table that a plug-in hands over: so that libplait.so needs no MPI, and any MPI will
 * do for which the plug-in was built. Plain C. Additions come at the end, with a higher version; what is there stays. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAIT_MPI_VERSION 2
#define PLAIT_MPI_ENTRY   "plait_mpi_get_table"

typedef struct plait_mpi_world plait_mpi_world;
typedef struct plait_mpi_request plait_mpi_request;

/* All functions that return int return 0, or MPI's error code for error_text. None of them waits for another process,
 * except open and close. Calls on one world come one at a time. */
typedef struct plait_mpi_table {
  int32_t version;

  /* 1 if MPI runs already. Then its calls may have to come from the host's own thread. */
  int32_t (*running)(void);

  /* All processes of MPI_COMM_WORLD together. Starts MPI if nobody has (with MPI_THREAD_SERIALIZED: calls may come from
   * any thread), and makes a communicator of its own, whose errors are returned. */
  int (*open)(plait_mpi_world** world, int32_t* rank, int32_t* size, int32_t* highest_tag, int32_t* started);
  /* Frees the world; finalize: ends MPI if this table started it and no other world of it is open. After a process was
   * lost MPI must not be ended, for that would wait for it. */
  void (*close)(plait_mpi_world* world, int32_t finalize);

  /* Begins to send; `data` must stay until `test` says that it is done. */
  int (*send)(plait_mpi_world* world, const void* data, int64_t bytes, int32_t to, int32_t tag,
              plait_mpi_request** request);
  /* Looks whether a message is there. from: -1 for any. */
  int (*probe)(plait_mpi_world* world, int32_t from, int32_t tag, int32_t* found, int32_t* found_from,
               int64_t* bytes);
  /* Begins to receive a message that `probe` found. */
  int (*receive)(plait_mpi_world* world, void* data, int64_t bytes, int32_t from, int32_t tag,
                 plait_mpi_request** request);
  /* Once done is 1 the request is gone. */
  int (*test)(plait_mpi_world* world, plait_mpi_request* request, int32_t* done);

  void (*error_text)(int code, char* text, int32_t text_bytes);
} plait_mpi_table;

/* The one symbol of the plug-in, PLAIT_MPI_ENTRY. */
typedef const plait_mpi_table* plait_mpi_entry(void);

#ifdef __cplusplus
}
#endif

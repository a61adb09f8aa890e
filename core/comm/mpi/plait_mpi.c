/* The plug-in: implements the table of mpi_table.h with MPI. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "core/comm/mpi_table.h"

struct plait_mpi_world {
  MPI_Comm comm;
};
struct plait_mpi_request {
  MPI_Request request;
};

/* MPI is one thing of the whole process, and so is whether we started it. */
static int started_here, open_worlds;

/* Errors of the duplication itself are those of MPI_COMM_WORLD, whose handler is the host's. */
static int duplicate(MPI_Comm* comm) {
  MPI_Errhandler theirs;
  int code = MPI_Comm_get_errhandler(MPI_COMM_WORLD, &theirs);
  if (code) return code;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  code = MPI_Comm_dup(MPI_COMM_WORLD, comm);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, theirs);
  MPI_Errhandler_free(&theirs);
  return code ? code : MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
}

static int start(void) {
  int initialized = 0, finalized = 0, level = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized) return MPI_ERR_OTHER; /* once ended it cannot be started again */
  if (initialized) return 0;
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
  started_here = !code;
  return code;
}

static int32_t running(void) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  return initialized != 0;
}

static int open_world(plait_mpi_world** out, int32_t* rank, int32_t* size, int32_t* highest_tag, int32_t* started) {
  int code = start();
  if (code) return code;
  plait_mpi_world* world = malloc(sizeof *world);
  if (!world) return MPI_ERR_NO_MEM;
  if ((code = duplicate(&world->comm))) {
    free(world);
    return code;
  }
  int its_rank, its_size, *highest = NULL, found = 0;
  MPI_Comm_rank(world->comm, &its_rank);
  MPI_Comm_size(world->comm, &its_size);
  MPI_Comm_get_attr(world->comm, MPI_TAG_UB, &highest, &found);
  *rank = its_rank;
  *size = its_size;
  *highest_tag = found ? *highest : 32767; /* what the standard promises */
  *started = started_here;
  *out = world;
  ++open_worlds;
  return 0;
}

static void close_world(plait_mpi_world* world, int32_t finalize) {
  --open_worlds;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalize && !finalized) {
    MPI_Comm_free(&world->comm);
    if (started_here && open_worlds == 0) MPI_Finalize();
  }
  free(world);
}

static int keep(int code, MPI_Request raw, plait_mpi_request** request) {
  if (code) return code;
  *request = malloc(sizeof **request);
  if (!*request) return MPI_ERR_NO_MEM;
  (*request)->request = raw;
  return 0;
}

static int send_bytes(plait_mpi_world* world, const void* data, int64_t bytes, int32_t to, int32_t tag,
                      plait_mpi_request** request) {
  MPI_Request raw = MPI_REQUEST_NULL;
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, world->comm, &raw);
  return keep(code, raw, request);
}

static int receive_bytes(plait_mpi_world* world, void* data, int64_t bytes, int32_t from, int32_t tag,
                         plait_mpi_request** request) {
  MPI_Request raw = MPI_REQUEST_NULL;
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, world->comm, &raw);
  return keep(code, raw, request);
}

static int probe(plait_mpi_world* world, int32_t from, int32_t tag, int32_t* found, int32_t* found_from,
                 int64_t* bytes) {
  MPI_Status status;
  int flag = 0, count = 0;
  int code = MPI_Iprobe(from < 0 ? MPI_ANY_SOURCE : from, tag, world->comm, &flag, &status);
  *found = !code && flag;
  if (!*found) return code;
  *found_from = status.MPI_SOURCE;
  code = MPI_Get_count(&status, MPI_BYTE, &count);
  *bytes = count;
  return code;
}

static int test(plait_mpi_world* world, plait_mpi_request* request, int32_t* done) {
  (void)world;
  int flag = 0;
  int code = MPI_Test(&request->request, &flag, MPI_STATUS_IGNORE);
  *done = code || flag;
  if (*done) free(request);
  return code;
}

static void error_text(int code, char* text, int32_t text_bytes) {
  char words[MPI_MAX_ERROR_STRING];
  int length = 0, finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) strcpy(words, "MPI was already ended in this process, and cannot be started again");
  else if (MPI_Error_string(code, words, &length)) strcpy(words, "an unknown error");
  strncpy(text, words, (size_t)text_bytes);
  text[text_bytes - 1] = 0;
}

__attribute__((visibility("default"))) const plait_mpi_table* plait_mpi_get_table(void);
const plait_mpi_table* plait_mpi_get_table(void) {
  static const struct plait_mpi_table table = {
      PLAIT_MPI_VERSION, running, open_world, close_world, send_bytes, probe, receive_bytes, test, error_text,
  };
  return &table;
}

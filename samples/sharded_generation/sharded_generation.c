/* Generates from a model on several ranks, and prints its speed, and each rank's memory.
 *
 *   cc -std=c11 sharded_generation.c -lplait -o sharded_generation
 *   ./sharded_generation MODEL_DIRECTORY tensor=2 "Once upon a time"              the ranks are threads
 *   mpirun -n 2 ./sharded_generation MODEL_DIRECTORY tensor=2 "Once upon a time"  the ranks are processes
 *
 * The same program runs on every process: rank 0 generates, the others serve it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plait.h"

static int failed(const char* what) {
  fprintf(stderr, "%s: %s %s\n", what, plait_last_error(), plait_last_hint());
  return 1;
}

static int print_figures(plait_generator* generator, plait_request* request) {
  plait_usage usage = {.struct_size = sizeof usage};
  if (plait_request_usage(request, &usage) != PLAIT_OK) return failed("usage");
  const double seconds = usage.total_s - usage.first_token_s;
  fprintf(stderr, "%lld tokens, the first after %.3f s, then %.1f a second\n", (long long)usage.new_tokens,
          usage.first_token_s, seconds > 0 ? (double)(usage.new_tokens - 1) / seconds : 0.0);
  plait_tensor* ranks = NULL;
  if (plait_generator_ranks(generator, &ranks) != PLAIT_OK) return failed("ranks");
  fprintf(stderr, "ranks: %s\n", plait_tensor_text(ranks));
  plait_tensor_release(ranks);
  return 0;
}

static int print_text(plait_request* request) {
  plait_event event = {.struct_size = sizeof event};
  do {
    if (plait_request_next(request, -1, &event) != PLAIT_OK) return failed("next");
    fwrite(event.text, 1, (size_t)event.text_length, stdout);
    fflush(stdout);
  } while (event.kind != PLAIT_EVENT_END);
  putchar('\n');
  return 0;
}

/* On rank 0. Without a world the generator makes threads of its own, as many as the mesh has ranks. */
static int generate(plait_world* world, char** words) {
  plait_model* model = NULL;
  plait_options* options = NULL;
  plait_generator* generator = NULL;
  plait_request* request = NULL;
  int status = 0;
  plait_options_create(&options);
  plait_options_set(options, "max_tokens", "64", -1);
  plait_options_set(options, "seed", "7", -1);
  if (plait_options_set(options, "mesh", words[2], -1) != PLAIT_OK) status = failed("mesh");
  else if (plait_model_open(words[1], NULL, &model) != PLAIT_OK) status = failed("open");
  else if ((world ? plait_generator_create_on(world, model, options, &generator)
                  : plait_generator_create(model, options, &generator)) != PLAIT_OK ||
           plait_generator_wait(generator, -1) != PLAIT_OK)
    status = failed("load");
  else if (plait_generator_submit_text(generator, words[3], -1, NULL, NULL, &request) != PLAIT_OK)
    status = failed("submit");
  else status = print_text(request) || print_figures(generator, request);
  plait_request_release(request);
  plait_generator_release(generator);
  plait_model_release(model);
  plait_options_release(options);
  return status;
}

int main(int count, char** words) {
  if (count != 4) {
    fprintf(stderr, "usage: %s MODEL_DIRECTORY MESH PROMPT, for example with the mesh tensor=2\n", words[0]);
    return 2;
  }
  /* What mpirun of Open MPI, or srun, tells the processes that it starts. */
  if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK")) return generate(NULL, words);

  plait_world* world = NULL;
  int32_t rank = 0, size = 0;
  if (plait_world_open(NULL, &world) != PLAIT_OK || plait_world_rank(world, &rank, &size) != PLAIT_OK)
    return failed("world");
  int status = 0;
  if (rank == 0) {
    status = generate(world, words);
    plait_world_close(world); /* the others return from plait_world_serve */
  } else if (plait_world_serve(world) != PLAIT_OK) {
    status = failed("serve");
  }
  plait_world_release(world);
  return status;
}

// A C host: opens a model and generates, twice in one process. Faults are for the first try.
//
// usage: host MODEL THREADS
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bindings/c/plait.h"
#include "tests/faults/inject.h"

static fault_page* page(void) {
  const char* path = getenv("PLAIT_FAULTS");
  const int file = path ? open(path, O_RDWR) : -1;
  void* mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(fault_page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  return mapped == MAP_FAILED ? NULL : mapped;
}

static plait_status try_once(const char* path, const char* threads, char* out, size_t size) {
  plait_options* options = NULL;
  plait_model* model = NULL;
  plait_generator* generator = NULL;
  plait_request* request = NULL;
  plait_tokenizer* tokenizer = NULL;
  plait_tensor* ids = NULL;
  plait_status status = plait_options_create(&options);
  out[0] = 0;
  if (!status) status = plait_options_set(options, "threads", threads, -1);
  if (!status) status = plait_model_open(path, NULL, &model);
  if (!status) status = plait_generator_create(model, options, &generator);
  if (!status) status = plait_generator_wait(generator, -1);
  if (!status) status = plait_tokenizer_of_model(model, &tokenizer);
  if (!status) status = plait_tokenizer_encode(tokenizer, "the river and the sea", 21, 1, &ids);
  plait_options* of_request = NULL;
  if (!status) status = plait_options_create(&of_request);
  if (!status) status = plait_options_set(of_request, "max_tokens", "4", -1);
  if (!status) status = plait_options_set(of_request, "temperature", "0", -1);
  if (!status) status = plait_generator_submit_text(generator, "the river", 9, of_request, NULL, &request);
  for (plait_event event = {.struct_size = sizeof event}; !status;) {
    status = plait_request_next(request, 6000, &event);
    if (status) break;
    const size_t used = strlen(out);
    if (event.token >= 0) snprintf(out + used, size - used, " %d", event.token);
    if (event.finish != PLAIT_FINISH_NONE) break;
  }
  if (status) snprintf(out, size, ": error %s: %s", plait_status_name(status), plait_last_error());
  plait_request_release(request);
  plait_options_release(of_request);
  plait_tensor_release(ids);
  plait_tokenizer_release(tokenizer);
  plait_generator_release(generator);
  plait_model_release(model);
  plait_options_release(options);
  return status;
}

int main(int count, char** words) {
  if (count < 3) return 2;
  char first[2000], second[2000];
  fault_page* shared = page();
  try_once(words[1], words[2], first, sizeof first);
  if (shared) shared->mode = fault_off;
  try_once(words[1], words[2], second, sizeof second);
  printf("first%s\nsecond %s\n", first, second);
  return 0;
}

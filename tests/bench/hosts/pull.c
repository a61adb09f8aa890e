/* What it costs to pull a token that is there already, and to copy a tensor of 1 MiB in and out, in nanoseconds, each round a line. Of
 * tensors the mean of many: the first one has memory that the process must fetch from the system, in any language.
 * Usage: pull MODEL_DIRECTORY ROUNDS */
#include <string.h>

#include "tests/bench/hosts/bench.h"

int main(int count, char** words) {
  if (count != 3) return 2;
  plait_model* model = NULL;
  plait_options *small = NULL, *greedy = NULL;
  plait_generator* generator = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_options_create(&small));
  need(plait_options_set(small, "threads", "1", -1));
  need(plait_options_set(small, "cache_bytes", "4M", -1));
  need(plait_generator_create(model, small, &generator));
  need(plait_options_create(&greedy));
  need(plait_options_set(greedy, "ignore_eos", "true", -1));
  need(plait_options_set(greedy, "max_tokens", "480", -1));
  need(plait_options_set(greedy, "temperature", "0", -1));
  const int32_t prompt[] = {5, 6, 7};
  const int64_t bytes = 1 << 20;
  char *from = calloc(1, bytes), *to = malloc(bytes);
  for (int round = 0; round < atoi(words[2]); ++round) {
    plait_request* request = NULL;
    plait_event event = {.struct_size = sizeof event};
    need(plait_generator_submit_ids(generator, prompt, 3, greedy, NULL, &request));
    plait_usage usage = {.struct_size = sizeof usage};
    do need(plait_request_usage(request, &usage));
    while (usage.new_tokens < 480);
    double begin = now();
    int64_t tokens = 0;
    for (need(plait_request_next(request, -1, &event)); event.kind != PLAIT_EVENT_END; ++tokens)
      need(plait_request_next(request, -1, &event));
    const double pulled = (now() - begin) / (double)tokens;
    need(plait_request_release(request));
    begin = now();
    for (int copy = 0; copy < 16; ++copy) {
      plait_tensor* tensor = NULL;
      plait_view view = {.struct_size = sizeof view};
      need(plait_tensor_copy(PLAIT_U8, &bytes, 1, from, bytes, &tensor));
      need(plait_tensor_view(tensor, &view));
      memcpy(to, view.data, (size_t)bytes);
      need(plait_tensor_release(tensor));
    }
    printf("%.0f %.0f\n", 1e9 * pulled, 1e9 * (now() - begin) / 16);
  }
  return 0;
}

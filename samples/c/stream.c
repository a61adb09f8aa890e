/* Streams a model's continuation of a prompt: the smallest program that generates text with Plait.
 *
 *   cc -std=c11 stream.c -lplait -o stream && ./stream models/gemma-3-270m "Once upon a time"
 */
#include <stdio.h>

#include "plait.h"

static int failed(const char* what) {
  fprintf(stderr, "%s: %s %s\n", what, plait_last_error(), plait_last_hint());
  return 1;
}

int main(int count, char** words) {
  if (count != 3) {
    fprintf(stderr, "usage: %s MODEL_DIRECTORY PROMPT\n", words[0]);
    return 2;
  }
  plait_model* model = NULL;
  if (plait_model_open(words[1], NULL, &model) != PLAIT_OK) return failed("open");

  /* Loading starts here; the calls that need the weights wait for them. */
  plait_generator* generator = NULL;
  if (plait_generator_create(model, NULL, &generator) != PLAIT_OK) return failed("load");

  plait_options* options = NULL;
  plait_options_create(&options);
  plait_options_set(options, "max_tokens", "64", -1);
  plait_request* request = NULL;
  if (plait_generator_submit_text(generator, words[2], -1, options, NULL, &request) != PLAIT_OK)
    return failed("submit");

  plait_event event = {.struct_size = sizeof event};
  do {
    if (plait_request_next(request, -1, &event) != PLAIT_OK) return failed("next");
    fwrite(event.text, 1, (size_t)event.text_length, stdout);
    fflush(stdout);
  } while (event.kind != PLAIT_EVENT_END);
  putchar('\n');

  /* Any order will do: each object keeps alive what it needs. */
  plait_model_release(model);
  plait_generator_release(generator);
  plait_request_release(request);
  plait_options_release(options);
  return 0;
}

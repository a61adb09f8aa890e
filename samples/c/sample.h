/* What the samples have in common: a call that fails ends the program with what went wrong. */
#ifndef PLAIT_SAMPLE_H
#define PLAIT_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plait.h"

static void need(plait_status status) {
  if (status == PLAIT_OK) return;
  fprintf(stderr, "%s: %s %s\n", plait_status_name(status), plait_last_error(), plait_last_hint());
  exit(1);
}

/* Options from words: key, value, ..., NULL. */
static inline plait_options* options_of(const char* const* words) {
  plait_options* options = NULL;
  need(plait_options_create(&options));
  for (; words[0]; words += 2) need(plait_options_set(options, words[0], words[1], -1));
  return options;
}
#define OPTIONS(...) options_of((const char* const[]){__VA_ARGS__, NULL})

/* Prints what a request generates, and a line's end. */
static inline void print_text(plait_request* request) {
  plait_event event = {.struct_size = sizeof event};
  do {
    need(plait_request_next(request, -1, &event));
    fwrite(event.text, 1, (size_t)event.text_length, stdout);
  } while (event.kind != PLAIT_EVENT_END);
  putchar('\n');
}

#endif

/* What the programs have in common that run one of the lists of this folder: the list, the fixtures, small objects. */
#ifndef PLAIT_TESTS_BINDINGS_LISTS_H
#define PLAIT_TESTS_BINDINGS_LISTS_H

#include <stdlib.h>

#include "tests/bindings/c/check.h"

static const char* fixtures;

/* ---- The list ---- */

typedef struct entry {
  char key[64];
  char* value;
} entry;
static entry entries[128];
static int entry_count = 0;

static void read_list(const char* path) {
  FILE* file = fopen(path, "r");
  char line[8192];
  while (file && fgets(line, sizeof line, file) && entry_count < 128) {
    char* sign = strstr(line, " = ");
    if (line[0] == '#' || !sign) continue;
    *sign = '\0';
    sign[strcspn(sign + 3, "\n") + 3] = '\0';
    snprintf(entries[entry_count].key, sizeof entries[0].key, "%.63s", line);
    entries[entry_count++].value = strdup(sign + 3);
  }
  if (file) fclose(file);
}

static inline const char* value_of(const char* key) {
  for (int i = 0; i < entry_count; ++i)
    if (strcmp(entries[i].key, key) == 0) return entries[i].value;
  ++failures;
  printf("the list has no %s\n", key);
  return "";
}

/* ---- Objects ---- */

static plait_options* options_of(const char* const* words) {
  plait_options* out = NULL;
  OK(plait_options_create(&out));
  for (; words[0]; words += 2) OK(plait_options_set(out, words[0], words[1], -1));
  return out;
}
#define OPTIONS(...) options_of((const char* const[]){__VA_ARGS__, NULL})

static const char* path_of(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", fixtures, name);
  return path;
}

static inline plait_model* open_model(const char* name) {
  plait_model* out = NULL;
  OK(plait_model_open(path_of(name), NULL, &out));
  return out;
}

static plait_generator* generator_of(plait_model* model, plait_options* options) {
  plait_generator* out = NULL;
  OK(plait_options_set(options, "threads", "1", -1));
  OK(plait_options_set(options, "cache_bytes", "4M", -1));
  OK(plait_generator_create(model, options, &out));
  OK(plait_options_release(options));
  return out;
}

#define GREEDY(...) OPTIONS("temperature", "0", "ignore_eos", "true", __VA_ARGS__)

#endif

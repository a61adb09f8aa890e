/* What the benches in C have in common. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bindings/c/plait.h"

/* Seconds, of a clock that only runs forward. */
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Ends the bench with the message of a call that failed. */
static void need(plait_status status) {
  if (status == PLAIT_OK) return;
  fprintf(stderr, "%s\n", plait_last_error());
  exit(1);
}

/* What the interface tests check with: a failed check is counted and told, the program's status is their number. */
#ifndef PLAIT_TESTS_BINDINGS_CHECK_H
#define PLAIT_TESTS_BINDINGS_CHECK_H

#include <stdio.h>
#include <string.h>

#include "bindings/c/plait.h"

static int failures = 0;

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      ++failures;                                                                                         \
      printf("%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, plait_last_error()); \
    }                                                                                                     \
  } while (0)

/* The call has that status; a status that is no success comes with a message. */
#define STATUS(expected, call)                                                                                      \
  do {                                                                                                              \
    plait_status got_ = (call);                                                                                     \
    int told_ = got_ == PLAIT_OK || got_ != (expected) || plait_last_error()[0] != '\0';                            \
    if (got_ != (expected) || !told_) {                                                                             \
      ++failures;                                                                                                   \
      printf("%s:%d: %s is %s, expected %s (last error: %s)\n", __FILE__, __LINE__, #call, plait_status_name(got_), \
             plait_status_name(expected), plait_last_error());                                                      \
    }                                                                                                               \
  } while (0)

#define OK(call) STATUS(PLAIT_OK, call)

#endif

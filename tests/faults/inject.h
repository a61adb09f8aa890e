// The page that a driver and the preloaded library share: what is to fail, and what failed.
#pragma once
#include <stdint.h>

enum { fault_classes = 20, fault_sites = 1 << 16, fault_depth = 5, fault_text = 4096 };
enum { fault_off = 0, fault_count = 1, fault_once = 2, fault_from_then_on = 3, fault_short = 4 };

typedef struct fault_site {
  uint64_t stack;  // hash of its frames, relative to their modules
  int64_t first;   // number of its first call
} fault_site;

typedef struct fault_page {
  volatile int32_t mode, class_index, error, wants_sites;
  volatile int64_t number;                 // which call of the class, from 1
  volatile int64_t calls[fault_classes];   // so far, since the driver set them to 0
  volatile int64_t injected;               // a fault that did not happen shows nothing
  char stack[fault_text];                  // of the first one: lines "module+offset"
  char ending[fault_text];                 // of a signal that ended the process
  volatile int64_t site_count;
  fault_site sites[fault_sites];           // a table by hash; of allocations
} fault_page;

/* Requests of every kind come and go in one process: the memory does not grow, no page of the cache is lost, and what
 * a request gives does not depend on its company.
 *
 * usage: soak MODEL SECONDS [SEED]      MODEL: a fixture with 512 tokens and a context of 512
 *
 * Runs for SECONDS, and for at least 2,000 requests, in rounds of 200. After each round everything is drained and
 * measured: at its highest, resident memory of the second half is at most 1.1 times that of the first. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/bindings/c/check.h"

enum {
  round_requests = 200,
  least_requests = 2000,
  most_failures = 20, /* a broken library fails everywhere */
  slot_count = 8,     /* requests under way */
  kept_count = 4,     /* conversations to continue */
  vocabulary = 512,
  most_prompt = 120,
  most_new = 40,
  canary_tokens = 16,
  kept_room = 512 - most_prompt - most_new, /* longer conversations are not continued */
  patience_ms = 60000,
  most_rounds = 1 << 16
};

typedef enum { KIND_PLAIN, KIND_CANARY, KIND_TENSOR } SlotKind;

typedef struct {
  plait_request* request; /* NULL: free */
  SlotKind kind;
  int keep, has_deadline, cancelled;
  int count; /* tokens of sample 0 */
  int32_t tokens[most_new];
} Slot;

typedef struct {
  plait_model* model;
  plait_generator* generator;
  Slot slots[slot_count];
  plait_request* kept[kept_count];
  int32_t canary[canary_tokens]; /* what canary_prompt gives alone */
  /* What happened: a soak in which something never did tests too little. */
  int64_t submitted, refused, forked, restored, cancelled, dropped, expired, full, canaries, tensors;
} Soak;

static const int32_t canary_prompt[] = {323, 352, 460, 299, 398, 428, 121};
static uint64_t random_state;

/* xorshift64: 0 .. below - 1. */
static int dice(int below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (int)((random_state >> 11) % (uint64_t)below);
}

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* VmRSS in kB; 0 where the system does not tell. */
static long resident_kb(void) {
  long out = 0;
  char line[256];
  FILE* file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "VmRSS: %ld", &out) == 1) break;
  }
  if (file) fclose(file);
  return out;
}

static long highest(const long* values, int count) {
  long out = 0;
  for (int i = 0; i < count; ++i)
    if (values[i] > out) out = values[i];
  return out;
}

static void set(plait_options* options, const char* key, int value) {
  char text[32];
  snprintf(text, sizeof text, "%d", value);
  OK(plait_options_set(options, key, text, -1));
}

static void set_text(plait_options* options, const char* key, const char* value) {
  OK(plait_options_set(options, key, value, -1));
}

static void open_generator(const char* path, plait_model** model, plait_generator** generator) {
  plait_options* options = NULL;
  OK(plait_model_open(path, NULL, model));
  OK(plait_options_create(&options));
  set_text(options, "cache_bytes", "262144"); /* 2,048 tokens of the layer without a window: 8 requests press on it */
  set_text(options, "threads", "2");
  set_text(options, "step_tokens", "64");
  OK(plait_generator_create(*model, options, generator));
  OK(plait_options_release(options));
}

/* ---- Submitting ---- */

static plait_options* sampling_options(Slot* slot) {
  plait_options* out = NULL;
  OK(plait_options_create(&out));
  set(out, "max_tokens", 1 + dice(most_new));
  set_text(out, "temperature", dice(2) ? "0.8" : "0");
  if (dice(3) == 0) set(out, "top_k", 1 + dice(50));
  if (dice(3) == 0) set_text(out, "top_p", "0.9");
  if (dice(4) == 0) set_text(out, "repetition_penalty", "1.2");
  if (dice(4) == 0) set_text(out, "logit_bias", "5:-1.5,7:2");
  if (dice(4) == 0) set(out, "logprobs", dice(4));
  if (dice(4) == 0) set(out, "samples", 2 + dice(2));
  if (dice(2)) set_text(out, "ignore_eos", "true");
  set(out, "seed", dice(1 << 20));
  slot->keep = dice(3) == 0;
  if (slot->keep) set_text(out, "keep", "true");
  slot->has_deadline = dice(12) == 0;
  if (slot->has_deadline) set(out, "deadline_ms", 1 + dice(20));
  return out;
}

static plait_options* canary_options(void) {
  plait_options* out = NULL;
  OK(plait_options_create(&out));
  set(out, "max_tokens", canary_tokens);
  set_text(out, "temperature", "0");
  set_text(out, "ignore_eos", "true");
  return out;
}

static plait_options* tensor_options(void) {
  plait_options* out = NULL;
  OK(plait_options_create(&out));
  set_text(out, "kind", dice(2) ? "score" : "embed");
  return out;
}

/* A prompt out of range is refused, and leaves nothing behind. */
static void submit_refused(Soak* soak) {
  int32_t ids[] = {1, 2, vocabulary};
  plait_request* request = NULL;
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(soak->generator, ids, 3, NULL, NULL, &request));
  CHECK(!request);
  ++soak->refused;
}

static void submit(Soak* soak, Slot* slot) {
  int what = dice(20), count = 1 + dice(dice(3) ? 24 : most_prompt);
  if (what == 0) {
    submit_refused(soak);
    return;
  }
  int32_t ids[most_prompt];
  int common = dice(2) ? 64 : 0; /* a beginning that others have as well: its pages may be found in the cache */
  for (int i = 0; i < count; ++i) ids[i] = i < common ? 7 * i % vocabulary : dice(vocabulary);
  memset(slot, 0, sizeof *slot);
  plait_request* parent = NULL;
  plait_options* options = NULL;
  if (what <= 2) {
    slot->kind = KIND_CANARY;
    count = sizeof canary_prompt / sizeof *canary_prompt;
    memcpy(ids, canary_prompt, sizeof canary_prompt);
    options = canary_options();
  } else if (what <= 4) {
    slot->kind = KIND_TENSOR;
    options = tensor_options();
  } else {
    if (dice(2)) parent = soak->kept[dice(kept_count)];
    if (parent) ++soak->forked;
    options = sampling_options(slot);
  }
  OK(plait_generator_submit_ids(soak->generator, ids, count, options, parent, &slot->request));
  OK(plait_options_release(options));
  ++soak->submitted;
}

/* ---- Ending ---- */

static void release(plait_request** request) {
  OK(plait_request_release(*request));
  *request = NULL;
}

/* A conversation that ended, to be continued by later requests; now and then by way of its bytes. */
static void keep(Soak* soak, Slot* slot) {
  plait_usage usage = {.struct_size = sizeof usage};
  OK(plait_request_usage(slot->request, &usage));
  if (usage.prompt_tokens + most_new > kept_room) {
    release(&slot->request);
    return;
  }
  if (dice(3) == 0) {
    plait_tensor* bytes = NULL;
    plait_view view = {.struct_size = sizeof view};
    plait_request* restored = NULL;
    OK(plait_request_save(slot->request, &bytes));
    OK(plait_tensor_view(bytes, &view));
    plait_status status = plait_generator_restore(soak->generator, view.data, view.bytes, &restored);
    OK(plait_tensor_release(bytes));
    if (status == PLAIT_OK) {
      release(&slot->request);
      slot->request = restored;
      ++soak->restored;
    } else { /* the cache is full: the conversation stays as it was */
      STATUS(PLAIT_OUT_OF_MEMORY, status);
    }
  }
  plait_request** place = &soak->kept[dice(kept_count)];
  release(place);
  *place = slot->request;
  slot->request = NULL;
}

static void end(Soak* soak, Slot* slot) {
  if (slot->kind == KIND_CANARY && !slot->cancelled) {
    CHECK(slot->count == canary_tokens && memcmp(slot->tokens, soak->canary, sizeof soak->canary) == 0);
    ++soak->canaries;
  }
  if (slot->keep && !slot->cancelled) keep(soak, slot);
  else release(&slot->request);
}

static void take_tensor(Soak* soak, Slot* slot) {
  plait_tensor* tensor = NULL;
  plait_view view = {.struct_size = sizeof view};
  OK(plait_request_result(slot->request, &tensor));
  OK(plait_tensor_view(tensor, &view));
  CHECK(view.dtype == PLAIT_F32 && view.elements > 0);
  OK(plait_tensor_release(tensor));
  release(&slot->request);
  ++soak->tensors;
}

/* ---- One thing that a host does ---- */

/* Pulls `events`, or fewer if it ends. */
static void pull(Soak* soak, Slot* slot, int events) {
  plait_event event = {.struct_size = sizeof event};
  for (int i = 0; i < events && slot->request; ++i) {
    plait_status status = plait_request_next(slot->request, patience_ms, &event);
    if (status != PLAIT_OK) {
      int expired = slot->has_deadline && status == PLAIT_CANCELLED;
      if (expired) ++soak->expired;
      else if (status == PLAIT_OUT_OF_MEMORY) ++soak->full; /* kept conversations left too little for this one */
      else STATUS(PLAIT_OK, status);
      release(&slot->request);
    } else if (event.kind == PLAIT_EVENT_END) {
      end(soak, slot);
    } else if (event.sample == 0 && event.token >= 0 && slot->count < most_new) {
      slot->tokens[slot->count++] = event.token;
    }
  }
}

static void act(Soak* soak, Slot* slot) {
  int what = dice(16);
  if (!slot->request) {
    submit(soak, slot);
  } else if (what == 0) {
    ++soak->dropped;
    release(&slot->request);
  } else if (slot->kind == KIND_TENSOR) {
    take_tensor(soak, slot);
  } else if (what == 1) {
    ++soak->cancelled;
    slot->cancelled = 1;
    OK(plait_request_cancel(slot->request));
  } else {
    pull(soak, slot, 1 + dice(24));
  }
}

/* ---- Rounds ---- */

/* Everything ends, is released, and leaves the whole cache free. A released request is given back by the generator's
 * own thread, between two steps: that is waited for. */
static void drain(Soak* soak) {
  for (int i = 0; i < slot_count; ++i) {
    Slot* slot = &soak->slots[i];
    if (slot->request && slot->kind == KIND_TENSOR) take_tensor(soak, slot);
    while (slot->request) pull(soak, slot, 1000);
  }
  for (int i = 0; i < kept_count; ++i) release(&soak->kept[i]);
  plait_generator_stats stats = {.struct_size = sizeof stats};
  double start = now_s();
  int idle = 0;
  while (!idle && now_s() - start < 30) {
    OK(plait_generator_statistics(soak->generator, &stats));
    idle = stats.running == 0 && stats.waiting == 0 && stats.pages_free == stats.pages;
    if (!idle) usleep(1000);
  }
  CHECK(idle);
  if (idle) return;
  printf("after a drain: %lld running, %lld waiting, %lld of %lld pages free\n", (long long)stats.running,
         (long long)stats.waiting, (long long)stats.pages_free, (long long)stats.pages);
}

/* Another model and generator in the same process, loaded, used once and released. */
static void visit(const char* path) {
  plait_model* model = NULL;
  plait_generator* generator = NULL;
  Slot slot = {.kind = KIND_TENSOR};
  Soak soak = {0};
  open_generator(path, &model, &generator);
  plait_options* options = tensor_options();
  OK(plait_generator_submit_ids(generator, canary_prompt, 7, options, NULL, &slot.request));
  OK(plait_options_release(options));
  if (slot.request) take_tensor(&soak, &slot);
  OK(plait_model_release(model));
  OK(plait_generator_release(generator));
}

/* What the canary gives while nothing else runs. */
static void learn_canary(Soak* soak) {
  Slot slot = {.kind = KIND_PLAIN};
  plait_options* options = canary_options();
  OK(plait_generator_submit_ids(soak->generator, canary_prompt, 7, options, NULL, &slot.request));
  OK(plait_options_release(options));
  while (slot.request) pull(soak, &slot, 1000);
  CHECK(slot.count == canary_tokens);
  memcpy(soak->canary, slot.tokens, sizeof soak->canary);
}

static void report(const Soak* soak, double seconds, long first_kb, long second_kb) {
  plait_generator_stats stats = {.struct_size = sizeof stats};
  OK(plait_generator_statistics(soak->generator, &stats));
  printf(
      "%lld requests in %.1f s: %lld forked, %lld restored, %lld cancelled, %lld dropped, %lld expired, %lld full, "
      "%lld refused, %lld canaries, %lld tensors; %lld preempted, %lld prompt tokens found\n",
      (long long)soak->submitted, seconds, (long long)soak->forked, (long long)soak->restored,
      (long long)soak->cancelled, (long long)soak->dropped, (long long)soak->expired, (long long)soak->full,
      (long long)soak->refused, (long long)soak->canaries, (long long)soak->tensors, (long long)stats.preempted,
      (long long)stats.prefix_tokens);
  printf("highest resident memory: %ld kB in the first half, %ld kB in the second (%+.1f %%)\n", first_kb, second_kb,
         100.0 * (double)(second_kb - first_kb) / (double)first_kb);
  CHECK(soak->forked && soak->restored && soak->cancelled && soak->dropped && soak->expired && soak->refused);
  CHECK(soak->canaries && soak->tensors && stats.preempted);
}

int main(int count, char** words) {
  if (count < 3) return 2;
  double seconds = atof(words[2]), start = now_s();
  random_state = count > 3 ? strtoull(words[3], NULL, 10) * 2 + 1 : 88172645463325252u;
  static Soak soak;
  open_generator(words[1], &soak.model, &soak.generator);
  learn_canary(&soak);
  static long resident[most_rounds];
  int rounds = 0;
  long first_kb = 0, second_kb = 0;
  int grows = 1;
  /* On a loaded machine memory may reach its level in the second half only: what still grows after four times as long is a leak. */
  for (double limit = seconds; grows && limit <= 4 * seconds; limit *= 2) {
    while ((now_s() - start < limit || soak.submitted < least_requests) && failures < most_failures &&
           rounds < most_rounds) {
      int64_t target = soak.submitted + round_requests;
      while (soak.submitted < target && failures < most_failures) act(&soak, &soak.slots[dice(slot_count)]);
      visit(words[1]);
      drain(&soak);
      resident[rounds++] = resident_kb();
    }
    first_kb = highest(resident, rounds / 2);
    second_kb = highest(resident + rounds / 2, rounds - rounds / 2);
    grows = first_kb <= 0 || (double)second_kb > 1.1 * (double)first_kb;
  }
  CHECK(!grows);
  report(&soak, now_s() - start, first_kb, second_kb);
  OK(plait_generator_release(soak.generator));
  OK(plait_model_release(soak.model));
  printf("%d failures\n", failures);
  return failures != 0;
}

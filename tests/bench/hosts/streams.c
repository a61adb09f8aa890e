/* The closed loop of `./run bench serve` without HTTP: for each line of stdin a round, with the same prompts and lengths of answers that
 * the server gets; for each round a line with its tokens and its seconds. A line is the number of requests, then for each the answer's
 * tokens, the prompt's length and its ids.
 * Usage: streams MODEL STREAMS THREADS CACHE_BYTES */
#include "tests/bench/hosts/bench.h"

static long number(void) {
  long value;
  if (scanf("%ld", &value) != 1) exit(1);
  return value;
}

typedef struct ask {
  char tokens[32];
  long length;
  int32_t* ids;
} ask;

static plait_request* start(plait_generator* generator, plait_mailbox* mailbox, plait_options* options,
                            const ask* one, long tag) {
  plait_request* request = NULL;
  need(plait_options_set(options, "max_tokens", one->tokens, -1));
  need(plait_generator_submit_ids(generator, one->ids, one->length, options, NULL, &request));
  need(plait_request_attach(request, mailbox, tag));
  return request;
}

/* Takes what there is; whether the request is over. */
static int pull(plait_request* request, long* tokens) {
  plait_event event = {.struct_size = sizeof event};
  for (;;) {
    const plait_status status = plait_request_next(request, 0, &event);
    if (status == PLAIT_TIMEOUT) return 0;
    need(status);
    if (event.kind == PLAIT_EVENT_END) return 1;
    *tokens += event.token >= 0;
  }
}

int main(int count, char** words) {
  if (count != 5) return 2;
  const long streams = atol(words[2]);
  plait_model* model = NULL;
  plait_options *options = NULL, *greedy = NULL;
  plait_generator* generator = NULL;
  plait_mailbox* mailbox = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_options_create(&options));
  need(plait_options_set(options, "threads", words[3], -1));
  need(plait_options_set(options, "running", words[2], -1));
  need(plait_options_set(options, "cache_bytes", words[4], -1));
  need(plait_options_set(options, "dtype", "bf16", -1));
  need(plait_generator_create(model, options, &generator));
  need(plait_generator_wait(generator, -1));
  need(plait_options_create(&greedy));
  need(plait_options_set(greedy, "ignore_eos", "true", -1));
  need(plait_options_set(greedy, "temperature", "0", -1));
  need(plait_mailbox_create(&mailbox));
  long requests;
  while (scanf("%ld", &requests) == 1) {
    ask* asks = calloc((size_t)requests, sizeof *asks);
    plait_request** running = calloc((size_t)requests, sizeof *running);
    for (long i = 0; i < requests; ++i) {
      snprintf(asks[i].tokens, sizeof asks[i].tokens, "%ld", number());
      asks[i].length = number();
      asks[i].ids = calloc((size_t)asks[i].length, sizeof *asks[i].ids);
      for (long k = 0; k < asks[i].length; ++k) asks[i].ids[k] = (int32_t)number();
    }
    const double begin = now();
    long next = 0, over = 0, tokens = 0;
    while (over < requests) {
      for (; next < requests && next - over < streams; ++next)
        running[next] = start(generator, mailbox, greedy, &asks[next], next);
      int64_t tag = 0;
      need(plait_mailbox_next(mailbox, -1, &tag));
      if (!running[tag] || !pull(running[tag], &tokens)) continue;
      need(plait_request_release(running[tag]));
      running[tag] = NULL;
      ++over;
    }
    printf("%ld %.6f\n", tokens, now() - begin);
    fflush(stdout);
    for (long i = 0; i < requests; ++i) free(asks[i].ids);
    free(asks);
    free(running);
  }
  return 0;
}

/* Requests at once as clients of a server send them: for each line of stdin a round, for each round a line with its tokens and its
 * seconds, from the first submission to the last token.
 * Usage: batch MODEL_DIRECTORY REQUESTS TOKENS THREADS */
#include "tests/bench/hosts/bench.h"

int main(int count, char** words) {
  if (count != 5) return 2;
  const int requests = atoi(words[2]);
  plait_model* model = NULL;
  plait_options *options = NULL, *greedy = NULL;
  plait_generator* generator = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_options_create(&options));
  need(plait_options_set(options, "threads", words[4], -1));
  need(plait_options_set(options, "running", words[2], -1));
  need(plait_generator_create(model, options, &generator));
  need(plait_generator_wait(generator, -1));
  need(plait_options_create(&greedy));
  need(plait_options_set(greedy, "ignore_eos", "true", -1));
  need(plait_options_set(greedy, "temperature", "0", -1)); /* as servers have it by default, and */
  need(plait_options_set(greedy, "logprobs", "0", -1));    /* log-probabilities in their replies */
  need(plait_options_set(greedy, "max_tokens", words[3], -1));
  plait_request** running = calloc((size_t)requests, sizeof *running);
  while (getchar() != EOF) {
    const double begin = now();
    for (int i = 0; i < requests; ++i) {
      char prompt[64];
      snprintf(prompt, sizeof prompt, "Story %d: once upon a time there was a", i);
      need(plait_generator_submit_text(generator, prompt, -1, greedy, NULL, &running[i]));
    }
    long tokens = 0;
    for (int i = 0; i < requests; ++i) {
      plait_event event = {.struct_size = sizeof event};
      do {
        need(plait_request_next(running[i], -1, &event));
        tokens += event.token >= 0;
      } while (event.kind != PLAIT_EVENT_END);
    }
    printf("%ld %.6f\n", tokens, now() - begin);
    fflush(stdout);
    for (int i = 0; i < requests; ++i) need(plait_request_release(running[i]));
  }
  return 0;
}

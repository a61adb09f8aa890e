/* The program chooses the tokens itself, here the likeliest one that is even. Usage: host_sampling MODEL_DIRECTORY PROMPT */
#include "sample.h"

static int32_t choose(const float* logits, int64_t count) {
  int32_t best = 0;
  for (int32_t token = 2; token < count; token += 2)
    if (logits[token] > logits[best]) best = token;
  return best;
}

int main(int count, char** words) {
  if (count != 3) return 2;
  plait_model* model = NULL;
  plait_generator* generator = NULL;
  plait_request* request = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_generator_create(model, NULL, &generator));
  plait_options* options = OPTIONS("host_sampling", "true", "max_tokens", "16");
  need(plait_generator_submit_text(generator, words[2], -1, options, NULL, &request));
  plait_event event = {.struct_size = sizeof event};
  do {
    need(plait_request_next(request, -1, &event));
    if (event.kind == PLAIT_EVENT_LOGITS) need(plait_request_push(request, choose(event.logits, event.logits_count)));
    fwrite(event.text, 1, (size_t)event.text_length, stdout);
  } while (event.kind != PLAIT_EVENT_END);
  putchar('\n');
  plait_options_release(options);
  plait_request_release(request);
  plait_generator_release(generator);
  plait_model_release(model);
  return 0;
}

/* Several prompts at once: they share steps, and each gets the same result as by itself. Usage: batch MODEL_DIRECTORY PROMPT... */
#include "sample.h"

int main(int count, char** words) {
  if (count < 3) return 2;
  plait_model* model = NULL;
  plait_generator* generator = NULL;
  plait_request* requests[64] = {NULL};
  need(plait_model_open(words[1], NULL, &model));
  need(plait_generator_create(model, NULL, &generator));
  plait_options* options = OPTIONS("max_tokens", "16", "temperature", "0");
  const int prompts = count - 2 < 64 ? count - 2 : 64;
  for (int i = 0; i < prompts; ++i)
    need(plait_generator_submit_text(generator, words[i + 2], -1, options, NULL, &requests[i]));
  for (int i = 0; i < prompts; ++i) print_text(requests[i]);
  for (int i = 0; i < prompts; ++i) plait_request_release(requests[i]);
  plait_options_release(options);
  plait_generator_release(generator);
  plait_model_release(model);
  return 0;
}

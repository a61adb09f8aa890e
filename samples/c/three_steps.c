/* Three steps of training on one text, whose loss falls. Usage: three_steps MODEL_DIRECTORY TEXT */
#include "sample.h"

int main(int count, char** words) {
  if (count != 3) return 2;
  plait_model* model = NULL;
  plait_tokenizer* tokenizer = NULL;
  plait_tensor *ids = NULL, *document = NULL;
  plait_trainer* trainer = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_tokenizer_of_model(model, &tokenizer));
  need(plait_tokenizer_encode(tokenizer, words[2], -1, 1, &ids));
  plait_view view = {.struct_size = sizeof view};
  need(plait_tensor_view(ids, &view));
  int64_t dims[] = {1, view.elements}; /* one document */
  need(plait_tensor_copy(PLAIT_I32, dims, 2, view.data, view.bytes, &document));
  plait_options* options = OPTIONS("optimizer", "sgd", "lr", "0.5", "schedule", "constant");
  need(plait_trainer_create(model, options, &trainer));
  for (int i = 0; i < 3; ++i) {
    plait_step step = {.struct_size = sizeof step};
    need(plait_trainer_step(trainer, document, NULL, &step));
    printf("%.3f\n", step.loss);
  }
  plait_trainer_release(trainer);
  plait_options_release(options);
  plait_tensor_release(document);
  plait_tensor_release(ids);
  plait_tokenizer_release(tokenizer);
  plait_model_release(model);
  return 0;
}

/* Fine-tunes a model on documents of its own, step by step, with a loss of its own for the last one; then writes the model.
 *
 *   cc -std=c11 finetune.c -lplait -o finetune && ./finetune models/gemma-3-270m tuned
 */
#include <stdio.h>

#include "plait.h"

enum { documents = 2, length = 8 };

static int failed(const char* what) {
  fprintf(stderr, "%s: %s %s\n", what, plait_last_error(), plait_last_hint());
  return 1;
}

/* A loss: half the mean square of all logits, whose gradient is the logits over their number. */
static double square_loss(float* logits, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += (double)logits[i] * logits[i] / 2;
    logits[i] /= (float)count;
  }
  return sum / (double)count;
}

int main(int count, char** words) {
  if (count != 3) {
    fprintf(stderr, "usage: %s MODEL_DIRECTORY OUT_DIRECTORY\n", words[0]);
    return 2;
  }
  plait_model* model = NULL;
  if (plait_model_open(words[1], NULL, &model) != PLAIT_OK) return failed("open");
  plait_options* options = NULL;
  plait_options_create(&options);
  plait_options_set(options, "lora", "4", -1); /* adapters of rank 4; without it all weights are trained */
  plait_options_set(options, "lr", "1e-3", -1);
  plait_options_set(options, "seq", "8", -1);
  plait_options_set(options, "batch", "2", -1);
  plait_trainer* trainer = NULL;
  if (plait_trainer_create(model, options, &trainer) != PLAIT_OK) return failed("load");

  int32_t ids[documents][length] = {{5, 6, 7, 8, 9, 10, 11, 12}, {50, 48, 46, 44, 42, 40, 38, 36}};
  int64_t dims[] = {documents, length};
  plait_tensor* batch = NULL;
  if (plait_tensor_copy(PLAIT_I32, dims, 2, ids, sizeof ids, &batch) != PLAIT_OK) return failed("ids");

  /* The labels are the next ids: NULL. */
  plait_step step = {.struct_size = sizeof step};
  for (int i = 0; i < 2; ++i) {
    if (plait_trainer_step(trainer, batch, NULL, &step) != PLAIT_OK) return failed("step");
    printf("step %lld: loss %.4f\n", (long long)step.step, step.loss);
  }

  /* The same by parts: logits out, their gradient in, update. */
  plait_tensor* logits = NULL;
  if (plait_trainer_forward(trainer, batch, &logits) != PLAIT_OK) return failed("forward");
  plait_view view = {.struct_size = sizeof view};
  plait_tensor_view(logits, &view);
  const double loss = square_loss(view.data, view.elements);
  if (plait_trainer_backward(trainer, batch, logits) != PLAIT_OK) return failed("backward");
  if (plait_trainer_update(trainer, &step) != PLAIT_OK) return failed("update");
  printf("step %lld: own loss %.4f\n", (long long)step.step, loss);

  if (plait_trainer_export(trainer, words[2]) != PLAIT_OK) return failed("export");
  plait_tensor_release(logits);
  plait_tensor_release(batch);
  plait_trainer_release(trainer);
  plait_options_release(options);
  plait_model_release(model);
  return 0;
}

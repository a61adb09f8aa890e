/* Fine-tunes a model over eight ranks, which are threads of this process: two copies for the data, each of two pipeline stages of
 * two tensor parallel ranks. Optimizer state is sharded over the copies (ZeRO 1).
 *
 *   cc -std=c11 pipeline.c -lplait -lm -o pipeline && ./pipeline models/gemma-3-270m data=2,pipeline=2,tensor=2 1f1b
 */
#include "sample.h"

enum { documents = 8, length = 8 };

int main(int count, char** words) {
  if (count != 4) return fprintf(stderr, "usage: %s MODEL_DIRECTORY MESH SCHEDULE\n", words[0]), 2;
  plait_model* model = NULL;
  need(plait_model_open(words[1], NULL, &model));
  plait_options* options = OPTIONS("mesh", words[2], "pipeline", words[3], "micro_batches", "4", "zero", "1", "threads", "1",
                                   "lr", "1e-3", "seq", "8", "micro_batch", "8", "batch", "8");
  plait_trainer* trainer = NULL;
  need(plait_trainer_create(model, options, &trainer));

  /* Each document counts up from an id of its own. The labels are the next ids: NULL. */
  int32_t ids[documents][length];
  for (int d = 0; d < documents; ++d)
    for (int i = 0; i < length; ++i) ids[d][i] = 5 + 3 * d + i;
  const int64_t dims[] = {documents, length};
  plait_tensor* batch = NULL;
  need(plait_tensor_copy(PLAIT_I32, dims, 2, ids, sizeof ids, &batch));

  plait_step step = {.struct_size = sizeof step};
  for (int i = 0; i < 3; ++i) {
    need(plait_trainer_step(trainer, batch, NULL, &step));
    printf("step %lld: loss %.3f\n", (long long)step.step, step.loss);
  }

  plait_tensor_release(batch);
  plait_trainer_release(trainer);
  plait_options_release(options);
  plait_model_release(model);
  return 0;
}

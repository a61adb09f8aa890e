/* How near texts are to each other, by their mean hidden states. Usage: embeddings MODEL_DIRECTORY TEXT OTHER_TEXT */
#include <math.h>

#include "sample.h"

static plait_tensor* embedding_of(plait_generator* generator, const char* text) {
  plait_options* options = OPTIONS("kind", "embed", "pooling", "mean");
  plait_request* request = NULL;
  plait_tensor* result = NULL;
  need(plait_generator_submit_text(generator, text, -1, options, NULL, &request));
  need(plait_request_result(request, &result)); /* f32 [h] */
  plait_request_release(request);
  plait_options_release(options);
  return result;
}

int main(int count, char** words) {
  if (count != 4) return 2;
  plait_model* model = NULL;
  plait_generator* generator = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_generator_create(model, NULL, &generator));
  plait_tensor *one = embedding_of(generator, words[2]), *two = embedding_of(generator, words[3]);
  plait_view a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
  need(plait_tensor_view(one, &a));
  need(plait_tensor_view(two, &b));
  double dot = 0, first = 0, second = 0;
  for (int64_t i = 0; i < a.elements; ++i) {
    const double x = ((const float*)a.data)[i], y = ((const float*)b.data)[i];
    dot += x * y, first += x * x, second += y * y;
  }
  printf("%.3f\n", dot / sqrt(first * second));
  plait_tensor_release(one);
  plait_tensor_release(two);
  plait_generator_release(generator);
  plait_model_release(model);
  return 0;
}

/* Any graph, tensors in, tensors out: an encoder's states of a row of tokens. Inputs are i64 [1, s]: tokens for the first, ones
 * for a mask, zeros for what else there is. Usage: session MODEL.onnx OUTPUT TOKEN... */
#include "sample.h"

int main(int count, char** words) {
  if (count < 4) return 2;
  plait_model* model = NULL;
  plait_session* session = NULL;
  need(plait_model_open(words[1], NULL, &model));
  need(plait_session_create(model, NULL, &session));
  int64_t inputs = 0, outputs = 0, dims[] = {1, count - 3};
  need(plait_session_count(session, &inputs, &outputs));
  const char* names[8];
  plait_tensor* values[8];
  for (int64_t i = 0; i < inputs && i < 8; ++i) {
    plait_operand operand = {.struct_size = sizeof operand};
    need(plait_session_input(session, i, &operand));
    names[i] = operand.name;
    need(plait_tensor_copy(PLAIT_I64, dims, 2, NULL, dims[1] * 8, &values[i]));
    plait_view view = {.struct_size = sizeof view};
    need(plait_tensor_view(values[i], &view));
    for (int64_t at = 0; at < dims[1]; ++at)
      ((int64_t*)view.data)[at] = i == 0 ? atoll(words[at + 3]) : strstr(operand.name, "mask") != NULL;
  }
  const char* wanted = words[2];
  plait_tensor* result = NULL;
  need(plait_session_run(session, names, values, inputs, &wanted, &result, 1));
  plait_view view = {.struct_size = sizeof view};
  need(plait_tensor_view(result, &view));
  for (int32_t i = 0; i < view.rank; ++i) printf("%lld ", (long long)view.dims[i]);
  printf("%.3f\n", ((const float*)view.data)[0]);
  for (int64_t i = 0; i < inputs; ++i) plait_tensor_release(values[i]);
  plait_tensor_release(result);
  plait_session_release(session);
  plait_model_release(model);
  return 0;
}

/* A library without parts: what it has works, calls that need a part are UNSUPPORTED and name its option. Usage: parts FIXTURES */
#include "bindings/server/plait_server.h"
#include "tests/bindings/c/check.h"

static int names(const char* option) { return strstr(plait_last_hint(), option) != NULL; }

static plait_options* options_with(const char* key, const char* value) {
  plait_options* options = NULL;
  OK(plait_options_create(&options));
  OK(plait_options_set(options, key, value, -1));
  return options;
}

static void generate(plait_model* model) {
  plait_options* options = options_with("max_tokens", "8");
  plait_generator* generator = NULL;
  plait_request* request = NULL;
  const int32_t ids[] = {2, 5, 7};
  plait_event event = {.struct_size = sizeof event};
  int tokens = 0;
  OK(plait_generator_create(model, NULL, &generator));
  OK(plait_options_set(options, "ignore_eos", "true", -1));
  OK(plait_generator_submit_ids(generator, ids, 3, options, NULL, &request));
  while (plait_request_next(request, -1, &event) == PLAIT_OK && event.kind != PLAIT_EVENT_END) tokens += event.token >= 0;
  CHECK(tokens == 8);
  OK(plait_request_release(request));
  OK(plait_generator_release(generator));
  OK(plait_options_release(options));
}

static void cuda(plait_model* model) {
  plait_options* options = options_with("device", "cuda");
  plait_generator* generator = NULL;
  plait_status status = plait_generator_create(model, options, &generator);
  if (status == PLAIT_OK) status = plait_generator_wait(generator, -1);
  CHECK(status == PLAIT_UNSUPPORTED && names("PLAIT_CUDA"));
  OK(plait_generator_release(generator));
  OK(plait_options_release(options));
}

int main(int count, char** words) {
  char path[1024];
  plait_model *model = NULL, *other = NULL;
  plait_tensor* json = NULL;
  plait_server* server = NULL;
  plait_trainer* trainer = NULL;
  plait_options *bits = options_with("bits", "4"), *stages = options_with("mesh", "pipeline=2");
  if (count != 2) return 2;
  snprintf(path, sizeof path, "%s/gemma3-standard23", words[1]);
  OK(plait_model_open(path, NULL, &model));
  generate(model);
  cuda(model);

  STATUS(PLAIT_UNSUPPORTED, plait_plan(NULL, &json));
  CHECK(names("PLAIT_PLAN"));
  STATUS(PLAIT_UNSUPPORTED, plait_machine(NULL, &json));
  CHECK(names("PLAIT_PLAN"));
  STATUS(PLAIT_UNSUPPORTED, plait_trainer_create(model, NULL, &trainer));
  CHECK(names("PLAIT_TRAIN") && trainer == NULL);
  STATUS(PLAIT_UNSUPPORTED, plait_model_plan_training(model, NULL, &json));
  CHECK(names("PLAIT_TRAIN"));
  STATUS(PLAIT_UNSUPPORTED, plait_model_export(model, "plait_parts_staged", stages));
  CHECK(names("PLAIT_TRAIN"));
  OK(plait_trainer_release(NULL));
  STATUS(PLAIT_UNSUPPORTED, plait_model_export(model, "plait_parts_quantized", bits));
  CHECK(names("PLAIT_QUANTIZE"));
  STATUS(PLAIT_UNSUPPORTED, plait_server_create(NULL, &server));
  CHECK(names("PLAIT_SERVER"));
  OK(plait_server_release(NULL));

  /* Its file has convolutions. */
  snprintf(path, sizeof path, "%s/zoo/lfm2/hf5/decode.onnx", words[1]);
  plait_status status = plait_model_open(path, NULL, &other);
  if (status == PLAIT_OK) status = plait_model_wait(other, -1);
  CHECK(status == PLAIT_UNSUPPORTED && names("PLAIT_PLAIN"));

  OK(plait_model_release(other));
  OK(plait_options_release(bits));
  OK(plait_options_release(stages));
  OK(plait_model_release(model));
  return failures != 0;
}

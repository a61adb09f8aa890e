/* A model whose files are in memory, from wherever they come: here they are read. Usage: memory MODEL_DIRECTORY PROMPT */
#include "sample.h"

static plait_tensor* contents_of(const char* directory, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) exit(2);
  int64_t size = ftell(file);
  rewind(file);
  plait_tensor* contents = NULL;
  need(plait_tensor_copy(PLAIT_U8, &size, 1, NULL, size, &contents));
  plait_view view = {.struct_size = sizeof view};
  need(plait_tensor_view(contents, &view));
  if (fread(view.data, 1, (size_t)size, file) != (size_t)size) exit(2);
  fclose(file);
  return contents;
}

int main(int count, char** words) {
  if (count != 3) return 2;
  const char* names[] = {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"};
  plait_tensor* contents[4];
  plait_model* model = NULL;
  plait_generator* generator = NULL;
  plait_request* request = NULL;
  for (int i = 0; i < 4; ++i) contents[i] = contents_of(words[1], names[i]);
  need(plait_model_open_memory(names, contents, 4, NULL, &model));
  for (int i = 0; i < 4; ++i) plait_tensor_release(contents[i]); /* the model keeps them */
  need(plait_generator_create(model, NULL, &generator));
  plait_options* options = OPTIONS("max_tokens", "16", "temperature", "0");
  need(plait_generator_submit_text(generator, words[2], -1, options, NULL, &request));
  print_text(request);
  plait_options_release(options);
  plait_request_release(request);
  plait_generator_release(generator);
  plait_model_release(model);
  return 0;
}

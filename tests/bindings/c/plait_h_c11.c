/* plait.h as a C11 program sees it: wrong arguments, lifetimes, generation. Usage: plait_h_c11 FIXTURES */
#include <stdlib.h>

#include "tests/bindings/c/check.h"

static const char* fixtures;

static const char* fixture(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", fixtures, name);
  return path;
}

static plait_options* options_of(const char* key, const char* value) {
  plait_options* out = NULL;
  OK(plait_options_create(&out));
  OK(plait_options_set(out, key, value, -1));
  return out;
}

static plait_model* open_model(const char* name) {
  plait_model* out = NULL;
  OK(plait_model_open(fixture(name), NULL, &out));
  return out;
}

static plait_generator* make_generator(plait_model* model) {
  plait_options* options = options_of("cache_bytes", "4M");
  OK(plait_options_set(options, "threads", "1", -1));
  plait_generator* out = NULL;
  OK(plait_generator_create(model, options, &out));
  OK(plait_options_release(options));
  return out;
}

/* Pulls all tokens of sample 0; returns how many, at most `most`. */
static int pull(plait_request* request, int32_t* tokens, int most) {
  plait_event event = {.struct_size = sizeof event};
  int count = 0;
  for (;;) {
    plait_status status = plait_request_next(request, 60000, &event);
    if (status != PLAIT_OK) {
      STATUS(PLAIT_OK, status);
      return count;
    }
    if (event.kind == PLAIT_EVENT_END) return count;
    if (event.sample == 0 && event.token >= 0 && count < most) tokens[count++] = event.token;
  }
}

static void test_nulls(void) {
  plait_tensor* tensor = NULL;
  plait_model* model = NULL;
  plait_request* request = NULL;
  plait_generator* generator = NULL;
  plait_session* session = NULL;
  plait_tokenizer* tokenizer = NULL;
  double fraction = 0;
  int64_t count = 0;
  int32_t id = 0;
  plait_event event = {.struct_size = sizeof event};
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_open(NULL, NULL, &model));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_open("x", NULL, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_open_memory(NULL, NULL, 1, NULL, &model));
  STATUS(PLAIT_NOT_FOUND, plait_model_open_memory(NULL, NULL, 0, NULL, &model));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_info(NULL, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_dump(NULL, "raise", &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_plan(NULL, NULL, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_log_next(NULL, NULL, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_create(NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(NULL, "seed", "1", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set_tensor(NULL, "inputs_embeds", NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_describe(NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_read(NULL, PLAIT_NONE, &tensor));
  STATUS(PLAIT_NOT_FOUND, plait_tensor_read("no such file", PLAIT_NONE, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_write(NULL, "x"));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_ops(NULL, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_system(NULL, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_machine(NULL, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_plan(NULL, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tokenizer_of_model(NULL, &tokenizer));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tokenizer_open(NULL, NULL, &tokenizer));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tokenizer_encode(NULL, "x", -1, 1, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tokenizer_id(NULL, "x", -1, &id));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_create(NULL, NULL, &generator));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_wait(NULL, 0));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_progress(NULL, &fraction));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_cancel(NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_text(NULL, "x", -1, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_statistics(NULL, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_request_next(NULL, 0, &event));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_request_next(NULL, 0, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_request_push(NULL, 0));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_request_cancel(NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_request_attach(NULL, NULL, 0));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_mailbox_create(NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_mailbox_next(NULL, 0, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_mailbox_post(NULL, 0));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_session_create(NULL, NULL, &session));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_session_count(NULL, &count, NULL));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_session_run(NULL, NULL, NULL, 0, NULL, NULL, 0));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_view(NULL, NULL));
  CHECK(strcmp(plait_tensor_text(NULL), "") == 0);
  OK(plait_model_release(NULL));
  OK(plait_options_release(NULL));
  OK(plait_tensor_release(NULL));
  OK(plait_tokenizer_release(NULL));
  OK(plait_generator_release(NULL));
  OK(plait_request_release(NULL));
  OK(plait_session_release(NULL));
  CHECK(!model && !tensor && !request && !generator && !session && !tokenizer);
}

static void test_handles(void) {
  plait_options* options = options_of("seed", "1");
  plait_model* model = NULL;
  /* A handle of another kind, a released one, and a number that never was one. */
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_release((plait_model*)(void*)options));
  OK(plait_options_release(options));
  STATUS(PLAIT_CLOSED, plait_options_release(options));
  STATUS(PLAIT_CLOSED, plait_options_set(options, "seed", "2", -1));
  STATUS(PLAIT_CLOSED, plait_model_open(fixture("gpt2-optimum18"), options, &model));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_release((plait_options*)(uintptr_t)0x1234567));
  /* The slot is used again; the old handle stays dead. */
  for (int i = 0; i < 100; ++i) {
    plait_options* other = options_of("seed", "1");
    CHECK(other != options);
    STATUS(PLAIT_CLOSED, plait_options_release(options));
    OK(plait_options_release(other));
  }
}

static void test_options(void) {
  plait_options* options = NULL;
  OK(plait_options_create(&options));
  STATUS(PLAIT_NOT_FOUND, plait_options_set(options, "temprature", "1", -1));
  CHECK(strstr(plait_last_error(), "temprature") && strstr(plait_last_hint(), "temperature"));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "temperature", "warm", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "temperature", "nan", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "temperature", "-1", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "top_p", "1.5", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "max_tokens", "1x", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "logit_bias", "5", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "stop_tokens", "1,-2", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "kind", "dream", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "keep", "maybe", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, NULL, "1", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "seed", NULL, -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_options_set(options, "seed", "1", -2));
  OK(plait_options_set(options, "seed", "12345", 2)); /* 12 */
  OK(plait_options_set(options, "logit_bias", "5:-1.5,7:100", -1));
  plait_model* model = NULL;
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_open(fixture("gpt2-optimum18"), options, &model));
  CHECK(strstr(plait_last_error(), "logit_bias") && !model);
  OK(plait_options_release(options));
  plait_tensor* json = NULL;
  OK(plait_options_describe(&json));
  CHECK(strstr(plait_tensor_text(json), "\"key\": \"temperature\""));
  OK(plait_tensor_release(json));
}

static void test_tensors(void) {
  int64_t dims[] = {2, 3};
  float values[] = {1, 2, 3, 4, 5, 6};
  plait_tensor* tensor = NULL;
  OK(plait_tensor_copy(PLAIT_F32, dims, 2, values, sizeof values, &tensor));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(tensor, &view));
  CHECK(view.dtype == PLAIT_F32 && view.rank == 2 && view.dims[1] == 3 && view.elements == 6);
  CHECK(view.data != values && memcmp(view.data, values, sizeof values) == 0);
  view.struct_size = 4;
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_view(tensor, &view));
  CHECK(strcmp(plait_tensor_text(tensor), "") == 0);
  OK(plait_tensor_release(tensor));
  STATUS(PLAIT_CLOSED, plait_tensor_release(tensor));
  OK(plait_tensor_borrow(PLAIT_F32, dims, 2, values, sizeof values, &tensor));
  view.struct_size = sizeof view;
  OK(plait_tensor_view(tensor, &view));
  CHECK(view.data == values);
  OK(plait_tensor_release(tensor));
  const uint64_t texts[] = {2, 3, 0}; /* two strings, of 2 and 1 bytes; the third number is their texts: zeros */
  const int64_t two[] = {2};
  OK(plait_tensor_copy(PLAIT_STRING, two, 1, texts, 19, &tensor));
  OK(plait_tensor_view(tensor, &view));
  CHECK(view.elements == 2 && view.bytes == 19);
  plait_tensor *list = NULL, *part = NULL;
  int64_t parts = 0;
  OK(plait_tensor_list(PLAIT_STRING, &tensor, 1, &list));
  OK(plait_tensor_parts(list, &parts));
  CHECK(parts == 1);
  OK(plait_tensor_part(list, 0, &part));
  OK(plait_tensor_view(part, &view));
  CHECK(view.elements == 2 && view.bytes == 19 && memcmp(view.data, texts, 19) == 0);
  OK(plait_tensor_release(part));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_part(list, 1, &part));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_list(PLAIT_F32, &tensor, 1, &part));
  OK(plait_tensor_release(list));
  OK(plait_tensor_release(tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_STRING, two, 1, texts, 18, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_STRING, two, 1, texts, 15, &tensor));
  OK(plait_tensor_copy(PLAIT_I64, NULL, 0, NULL, 8, &tensor)); /* a scalar zero */
  OK(plait_tensor_release(tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_F32, dims, 2, values, 20, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy((plait_dtype)99, dims, 2, values, 24, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_F32, dims, 9, values, 24, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_F32, dims, -1, values, 24, &tensor));
  int64_t huge[] = {INT64_MAX / 2, 16}, negative[] = {-1, 3};
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_F32, huge, 2, NULL, 64, &tensor));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tensor_copy(PLAIT_F32, negative, 2, NULL, 0, &tensor));
}

/* What a mesh would make of it: one rank where none is asked for. */
static void test_plan(plait_model* model) {
  plait_tensor* text = NULL;
  OK(plait_model_plan(model, NULL, &text));
  CHECK(strstr(plait_tensor_text(text), "\"ranks\": 1,") && !strstr(plait_tensor_text(text), "all_reduce"));
  OK(plait_tensor_release(text));
  plait_options* options = NULL;
  OK(plait_options_create(&options));
  OK(plait_options_set(options, "mesh", "tensor=2", -1));
  OK(plait_model_plan(model, options, &text));
  CHECK(strstr(plait_tensor_text(text), "\"ranks\": 2,") && strstr(plait_tensor_text(text), "\"all_reduce\": 7"));
  OK(plait_tensor_release(text));
  OK(plait_options_set(options, "seeds", "*.up_proj.weight=[-, -]", -1));
  OK(plait_options_set(options, "seeds", "search", -1));
  OK(plait_model_plan(model, options, &text));
  OK(plait_tensor_release(text));
  OK(plait_options_set(options, "seeds", "dance", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_plan(model, options, &text));
  CHECK(strstr(plait_last_hint(), "tensor, expert, data, search") && !text);
  OK(plait_options_set(options, "isa", "reference", -1));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_model_plan(model, options, &text));
  OK(plait_options_release(options));
}

static void test_opening(void) {
  plait_model* model = NULL;
  STATUS(PLAIT_NOT_FOUND, plait_model_open("/no/such/model", NULL, &model));
  STATUS(PLAIT_NOT_FOUND, plait_model_open(fixture("goldens"), NULL, &model));
  CHECK(strstr(plait_last_hint(), "model.onnx"));
  STATUS(PLAIT_BAD_MODEL, plait_model_open(fixture("manifest.json"), NULL, &model));
  model = open_model("gemma3-standard23");
  plait_tensor* text = NULL;
  OK(plait_model_info(model, &text));
  CHECK(strstr(plait_tensor_text(text), "\"recognised\": true") && strstr(plait_tensor_text(text), "\"layers\": 3"));
  OK(plait_tensor_release(text));
  OK(plait_model_dump(model, "raise", &text));
  CHECK(strstr(plait_tensor_text(text), "plait.PagedAttention"));
  OK(plait_tensor_release(text));
  STATUS(PLAIT_NOT_FOUND, plait_model_dump(model, "dance", &text));
  CHECK(strstr(plait_last_hint(), "raise") && !text);
  test_plan(model);
  OK(plait_model_release(model));
}

/* Parents go first, children keep them alive; everything is released twice. */
static void test_lifetimes(void) {
  plait_model* model = open_model("gemma3-standard23");
  plait_generator* generator = make_generator(model);
  OK(plait_model_release(model));
  plait_request* request = NULL;
  int32_t prompt[] = {323, 352, 460, 299, 398, 428, 121}, tokens[16];
  plait_options* options = options_of("max_tokens", "16");
  OK(plait_options_set(options, "temperature", "0", -1));
  OK(plait_options_set(options, "ignore_eos", "true", -1));
  OK(plait_generator_submit_ids(generator, prompt, 7, options, NULL, &request));
  OK(plait_options_release(options));
  OK(plait_generator_release(generator));
  /* By tests/fixtures/manifest.json. */
  static const int32_t greedy[] = {288, 89, 354, 354, 354, 23, 23, 478, 419, 419, 419, 419, 419, 396, 383, 437};
  CHECK(pull(request, tokens, 16) == 16 && memcmp(tokens, greedy, sizeof greedy) == 0);
  plait_usage usage = {.struct_size = sizeof usage};
  OK(plait_request_usage(request, &usage));
  CHECK(usage.prompt_tokens == 7 && usage.new_tokens == 16 && usage.total_s >= usage.first_token_s);
  OK(plait_request_release(request));
  STATUS(PLAIT_CLOSED, plait_request_release(request));
  STATUS(PLAIT_CLOSED, plait_generator_release(generator));
  STATUS(PLAIT_CLOSED, plait_model_release(model));
  plait_event event = {.struct_size = sizeof event};
  STATUS(PLAIT_CLOSED, plait_request_next(request, -1, &event));
}

static void test_bad_prompts(plait_generator* generator) {
  plait_request* request = NULL;
  int32_t out_of_range[] = {1, 512}, negative[] = {-1}, fine[] = {1};
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, out_of_range, 2, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, negative, 1, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, fine, 0, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, NULL, 1, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, fine, -1, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_text(generator, "\xFF\xFE", 2, NULL, NULL, &request));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_chat(generator, "no json", -1, NULL, &request));
  STATUS(PLAIT_BAD_MODEL, plait_generator_restore(generator, "nonsense!", 9, &request));
  int32_t* longer = calloc(600, sizeof *longer);
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, longer, 600, NULL, NULL, &request));
  CHECK(strstr(plait_last_error(), "512"));
  free(longer);
  plait_options* other = options_of("threads", "1");
  STATUS(PLAIT_INVALID_ARGUMENT, plait_generator_submit_ids(generator, fine, 1, other, NULL, &request));
  OK(plait_options_release(other));
  CHECK(!request);
}

/* Text, and the text of ids, are the tokenizer's; a chat is the template's. */
static void test_text(plait_model* model, plait_generator* generator) {
  plait_tokenizer* tokenizer = NULL;
  OK(plait_tokenizer_of_model(model, &tokenizer));
  plait_tensor* ids = NULL;
  OK(plait_tokenizer_encode(tokenizer, "the river and the sea", -1, 1, &ids));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(ids, &view));
  CHECK(view.dtype == PLAIT_I32 && view.elements > 1);
  plait_options* options = options_of("max_tokens", "12");
  OK(plait_options_set(options, "temperature", "0", -1));
  plait_request *of_text = NULL, *of_ids = NULL;
  OK(plait_generator_submit_text(generator, "the river and the sea", -1, options, NULL, &of_text));
  OK(plait_generator_submit_ids(generator, view.data, view.elements, options, NULL, &of_ids));
  int32_t one[12], two[12];
  char text[4096] = "";
  plait_event event = {.struct_size = sizeof event};
  int count = 0;
  while (plait_request_next(of_text, 60000, &event) == PLAIT_OK && event.kind != PLAIT_EVENT_END) {
    if (event.token >= 0 && count < 12) one[count++] = event.token;
    strncat(text, event.text, sizeof text - strlen(text) - 1);
  }
  CHECK(event.kind == PLAIT_EVENT_END && count > 0);
  CHECK(pull(of_ids, two, 12) == count && memcmp(one, two, sizeof one[0] * (size_t)count) == 0);
  CHECK(text[0] != '\0');
  plait_tensor* piece = NULL;
  int32_t id = -1;
  OK(plait_tokenizer_piece(tokenizer, one[0], &piece));
  OK(plait_tokenizer_id(tokenizer, plait_tensor_text(piece), -1, &id));
  CHECK(id == one[0]);
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tokenizer_bytes(tokenizer, -1, &piece));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_tokenizer_decode(tokenizer, NULL, 3, 1, &piece));
  STATUS(PLAIT_NOT_FOUND, plait_tokenizer_id(tokenizer, "no such piece at all", -1, &id));
  plait_tokenizer_facts facts = {.struct_size = sizeof facts};
  OK(plait_tokenizer_info(tokenizer, &facts));
  CHECK(facts.vocabulary == 512 && facts.has_chat_template == 1);
  plait_request* chat = NULL;
  OK(plait_generator_submit_chat(generator, "[{\"role\": \"user\", \"content\": \"hello\"}]", -1, options, &chat));
  CHECK(pull(chat, two, 12) > 0);
  OK(plait_tensor_release(ids));
  OK(plait_tensor_release(piece));
  OK(plait_request_release(of_text));
  OK(plait_request_release(of_ids));
  OK(plait_request_release(chat));
  OK(plait_options_release(options));
  OK(plait_tokenizer_release(tokenizer));
}

int main(int count, char** words) {
  if (count != 2) return 2;
  fixtures = words[1];
  CHECK(strcmp(plait_version(), PLAIT_EXPECTED_VERSION) == 0);
  CHECK(strcmp(plait_status_name(PLAIT_BAD_MODEL), "bad_model") == 0);
  CHECK(strcmp(plait_status_name((plait_status)99), "unknown") == 0);
  test_nulls();
  test_handles();
  test_options();
  test_tensors();
  test_opening();
  test_lifetimes();
  plait_model* model = open_model("gemma3-standard23");
  plait_generator* generator = make_generator(model);
  OK(plait_generator_wait(generator, -1));
  double fraction = 0;
  OK(plait_generator_progress(generator, &fraction));
  CHECK(fraction == 1);
  test_bad_prompts(generator);
  test_text(model, generator);
  OK(plait_generator_release(generator));
  OK(plait_model_release(model));
  printf("%d failures\n", failures);
  return failures != 0;
}

/* The scenarios of scenarios.txt in C: the same as in Java and C#, with the same expected results.
 * Usage: scenarios FIXTURES SCENARIOS */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <math.h>
#include <stdlib.h>

#include "tests/bindings/lists.h"

/* Numbers between commas, from `text` to its end or to a semicolon; *next is after that. */
typedef struct ids {
  int32_t at[64];
  int64_t count;
} ids;

static ids ids_at(const char* text, const char** next) {
  ids out = {{0}, 0};
  char* end = (char*)text;
  while (*text && *text != ';' && out.count < 64) {
    out.at[out.count++] = (int32_t)strtol(text, &end, 10);
    if (end == text) break;
    text = *end == ',' ? end + 1 : end;
  }
  if (next) *next = *text == ';' ? text + 1 : text;
  return out;
}
static ids ids_of(const char* key) { return ids_at(value_of(key), NULL); }

static void same_ids(const char* what, ids expected, ids got) {
  if (expected.count == got.count && memcmp(expected.at, got.at, (size_t)got.count * sizeof got.at[0]) == 0) return;
  ++failures;
  printf("%s: got ", what);
  for (int64_t i = 0; i < got.count; ++i) printf("%s%d", i ? "," : "", got.at[i]);
  printf("\n");
}

/* ---- Handles ---- */

static plait_request* submit(plait_generator* generator, ids prompt, plait_options* options, plait_request* parent) {
  plait_request* out = NULL;
  OK(plait_generator_submit_ids(generator, prompt.at, prompt.count, options, parent, &out));
  OK(plait_options_release(options));
  return out;
}

static int largest(const float* values, int64_t count) {
  int best = 0;
  for (int i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  return best;
}

/* The tokens of sample 0; `text` may be NULL. Logits are answered with the likeliest token. */
static ids pull(plait_request* request, char* text, size_t room) {
  ids out = {{0}, 0};
  plait_event event = {.struct_size = sizeof event};
  while (plait_request_next(request, 60000, &event) == PLAIT_OK && event.kind != PLAIT_EVENT_END) {
    if (event.token >= 0 && out.count < 64) out.at[out.count++] = event.token;
    if (text) strncat(text, event.text, room - strlen(text) - 1);
    if (event.kind == PLAIT_EVENT_LOGITS) OK(plait_request_push(request, largest(event.logits, event.logits_count)));
  }
  return out;
}

/* ---- The scenarios ---- */

static void stream_text(plait_generator* generator) {
  const char* prompt = value_of("stream.prompt");
  plait_options* options = GREEDY("max_tokens", value_of("stream.max_tokens"));
  plait_request* request = NULL;
  char text[4096] = "", hex[8192] = "";
  OK(plait_generator_submit_text(generator, prompt, (int64_t)strlen(prompt), options, NULL, &request));
  same_ids("stream", ids_of("stream.tokens"), pull(request, text, sizeof text));
  for (size_t i = 0; i < strlen(text); ++i) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)text[i]);
  CHECK(strcmp(hex, value_of("stream.text_hex")) == 0);
  if (strcmp(hex, value_of("stream.text_hex")) != 0) printf("got %s\n", hex);
  OK(plait_options_release(options));
  OK(plait_request_release(request));
}

static void batch_of_prompts(plait_generator* generator) {
  plait_request* requests[16];
  int count = 0;
  for (const char* next = value_of("batch.prompts"); *next && count < 16; ++count)
    requests[count] =
        submit(generator, ids_at(next, &next), GREEDY("max_tokens", value_of("batch.max_tokens")), NULL);
  const char* next = value_of("batch.tokens");
  for (int i = 0; i < count; ++i) {
    same_ids("batch", ids_at(next, &next), pull(requests[i], NULL, 0));
    OK(plait_request_release(requests[i]));
  }
  CHECK(count > 1 && !*next);
}

/* The same, pulled by one thread as events come. */
static void requests_by_mailbox(plait_generator* generator) {
  plait_mailbox* mailbox = NULL;
  plait_request* requests[16];
  ids got[16] = {0};
  int count = 0, ended = 0;
  OK(plait_mailbox_create(&mailbox));
  for (const char* next = value_of("batch.prompts"); *next && count < 16; ++count) {
    requests[count] =
        submit(generator, ids_at(next, &next), GREEDY("max_tokens", value_of("batch.max_tokens")), NULL);
    OK(plait_request_attach(requests[count], mailbox, count));
  }
  while (ended < count) {
    int64_t tag = -1;
    OK(plait_mailbox_next(mailbox, 60000, &tag));
    CHECK(tag >= 0 && tag < count);
    if (tag < 0 || tag >= count) break;
    plait_event event = {.struct_size = sizeof event};
    plait_status status;
    while ((status = plait_request_next(requests[tag], 0, &event)) == PLAIT_OK && event.kind != PLAIT_EVENT_END)
      if (event.token >= 0 && got[tag].count < 64) got[tag].at[got[tag].count++] = event.token;
    CHECK(status == PLAIT_OK || status == PLAIT_TIMEOUT);
    ended += status == PLAIT_OK;
  }
  const char* next = value_of("batch.tokens");
  for (int i = 0; i < count; ++i) {
    same_ids("mailbox", ids_at(next, &next), got[i]);
    OK(plait_request_release(requests[i]));
  }
  int64_t tag = 0;
  CHECK(plait_mailbox_next(mailbox, 0, &tag) == PLAIT_TIMEOUT);
  OK(plait_mailbox_post(mailbox, -7));
  OK(plait_mailbox_next(mailbox, 0, &tag));
  CHECK(tag == -7);
  OK(plait_mailbox_release(mailbox));
}

static void embeddings(plait_generator* generator) {
  plait_request* request = submit(generator, ids_of("prompt"), OPTIONS("kind", "embed", "pooling", "mean"), NULL);
  plait_tensor* result = NULL;
  OK(plait_request_result(request, &result));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(result, &view));
  CHECK(view.dtype == PLAIT_F32 && view.rank == 1);
  const char* next = value_of("embed.first");
  for (int i = 0; *next && i < view.elements; ++i) {
    char* end = NULL;
    double expected = strtod(next, &end);
    CHECK(fabs(expected - ((const float*)view.data)[i]) < 1e-4);
    if (fabs(expected - ((const float*)view.data)[i]) >= 1e-4) printf("got %.6f\n", ((const float*)view.data)[i]);
    next = *end == ',' ? end + 1 : end;
  }
  OK(plait_tensor_release(result));
  OK(plait_request_release(request));
}

static void prompt_logprobs(plait_generator* generator) {
  plait_request* request = submit(generator, ids_of("prompt"), OPTIONS("prompt_logprobs", "2", "max_tokens", "1"), NULL);
  plait_event event = {.struct_size = sizeof event};
  const char* next = value_of("prompt_logprobs");
  int tokens = 0, others = 0;
  while (plait_request_next(request, 60000, &event) == PLAIT_OK && event.kind != PLAIT_EVENT_END) {
    if (event.kind != PLAIT_EVENT_PROMPT) {
      ++others;
      continue;
    }
    CHECK(others == 0 && event.token >= 0 && event.text_length == 0);
    CHECK(event.top_count == (tokens > 0 ? 2 : 0));
    if (tokens++ == 0) {
      CHECK(isnan(event.logprob));
      continue;
    }
    char* end = NULL;
    CHECK(fabs(strtod(next, &end) - event.logprob) < 1e-4);
    next = *end == ',' ? end + 1 : end;
  }
  CHECK(tokens == 7 && others == 1 && !*next);
  OK(plait_request_release(request));
}

/* The first step of the file as it stands: a past of no tokens. */
static void session_tensors(void) {
  plait_model* model = open_model(value_of("session.model"));
  plait_session* session = NULL;
  plait_options* options = OPTIONS("threads", "1");
  OK(plait_session_create(model, options, &session));
  OK(plait_options_release(options));
  ids prompt = ids_of("prompt");
  int64_t inputs = 0, outputs = 0, tokens[64], ones[64], positions[64];
  for (int i = 0; i < 64; ++i) tokens[i] = prompt.at[i], ones[i] = 1, positions[i] = i;
  OK(plait_session_count(session, &inputs, &outputs));
  const char* names[32];
  plait_tensor* values[32];
  for (int64_t i = 0; i < inputs && i < 32; ++i) {
    plait_operand operand = {.struct_size = sizeof operand};
    OK(plait_session_input(session, i, &operand));
    names[i] = operand.name;
    if (strstr(operand.name, "past")) {
      int64_t dims[] = {1, operand.dims[1], 0, operand.dims[3]};
      OK(plait_tensor_copy(operand.dtype, dims, 4, NULL, 0, &values[i]));
    } else {
      int64_t dims[] = {1, prompt.count};
      const int64_t* of = !strcmp(operand.name, "input_ids")      ? tokens
                          : !strcmp(operand.name, "position_ids") ? positions
                                                                  : ones;
      OK(plait_tensor_copy(PLAIT_I64, dims, 2, of, prompt.count * 8, &values[i]));
    }
  }
  const char* wanted[] = {"logits"};
  plait_tensor* logits = NULL;
  OK(plait_session_run(session, names, values, inputs, wanted, &logits, 1));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(logits, &view));
  int64_t width = view.dims[2];
  CHECK(view.rank == 3 &&
        largest((const float*)view.data + view.elements - width, width) == ids_of("session.likeliest").at[0]);
  for (int64_t i = 0; i < inputs; ++i) OK(plait_tensor_release(values[i]));
  OK(plait_tensor_release(logits));
  OK(plait_session_release(session));
  OK(plait_model_release(model));
}

/* A tensor of the strings of "a,b". */
static plait_tensor* strings_of(const char* list) {
  char memory[1024];
  int64_t count = 1;
  for (const char* at = list; *at; ++at) count += *at == ',';
  uint64_t end = 0;
  int64_t text = 0;
  for (const char* at = list;; ++at) {
    if (*at && *at != ',') {
      memory[8 * count + (int64_t)end++] = *at;
      continue;
    }
    memcpy(memory + 8 * text++, &end, 8);
    if (!*at) break;
  }
  plait_tensor* out = NULL;
  OK(plait_tensor_copy(PLAIT_STRING, &count, 1, memory, 8 * count + (int64_t)end, &out));
  return out;
}

static void same_strings(const char* what, const char* list, plait_tensor* got) {
  plait_tensor* expected = strings_of(list);
  plait_view a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
  OK(plait_tensor_view(expected, &a));
  OK(plait_tensor_view(got, &b));
  if (a.bytes != b.bytes || memcmp(a.data, b.data, (size_t)a.bytes)) {
    ++failures;
    printf("%s: not %s\n", what, list);
  }
  OK(plait_tensor_release(expected));
}

/* Of the model that is written in hex in some pieces. */
static plait_session* session_of_hex(const char* name, int pieces) {
  uint8_t bytes[1024];
  int64_t size = 0;
  for (int piece = 1; piece <= pieces; ++piece) {
    char key[32];
    snprintf(key, sizeof key, "%s.model_hex%d", name, piece);
    for (const char* hex = value_of(key); hex[0] && hex[1] && size < 1024; hex += 2) {
      const char digits[] = {hex[0], hex[1], 0};
      bytes[size++] = (uint8_t)strtoul(digits, NULL, 16);
    }
  }
  plait_tensor* file = NULL;
  OK(plait_tensor_copy(PLAIT_U8, &size, 1, bytes, size, &file));
  const char* file_names[] = {"model.onnx"};
  plait_model* model = NULL;
  plait_session* session = NULL;
  OK(plait_model_open_memory(file_names, &file, 1, NULL, &model));
  OK(plait_session_create(model, NULL, &session));
  OK(plait_model_release(model));
  OK(plait_tensor_release(file));
  return session;
}

static void optional_sequence(void) {
  plait_session* session = session_of_hex("optional", 3);
  plait_operand operand = {.struct_size = sizeof operand};
  OK(plait_session_input(session, 0, &operand));
  CHECK(operand.is_list == 2 && operand.dtype == PLAIT_STRING);
  plait_tensor *text = strings_of("a,b"), *list = NULL, *given = NULL, *again = NULL, *found = NULL, *part = NULL;
  OK(plait_tensor_list(PLAIT_STRING, &text, 1, &list));
  const char *name = "given", *wanted = "again";
  for (int64_t parts = 0; parts < 2; ++parts) {
    OK(plait_tensor_list(PLAIT_STRING, &list, parts, &given));
    OK(plait_session_run(session, &name, &given, 1, &wanted, &again, 1));
    int64_t count = -1;
    OK(plait_tensor_parts(again, &count));
    CHECK(count == parts);
    if (parts == 1) {
      OK(plait_tensor_part(again, 0, &found));
      OK(plait_tensor_part(found, 0, &part));
      same_strings("part of an optional", "a,b", part);
      OK(plait_tensor_release(part));
      OK(plait_tensor_release(found));
    }
    OK(plait_tensor_release(again));
    OK(plait_tensor_release(given));
  }
  STATUS(PLAIT_INVALID_ARGUMENT, plait_session_run(session, &name, &list, 1, &wanted, &again, 1)); /* a sequence is none */
  OK(plait_tensor_release(list));
  OK(plait_tensor_release(text));
  OK(plait_session_release(session));
}

static void strings_and_lists(void) {
  plait_tensor *words[2], *list = NULL, *results[2], *part = NULL;
  plait_session* session = session_of_hex("strings", 4);
  plait_operand operand = {.struct_size = sizeof operand};
  OK(plait_session_input(session, 0, &operand));
  CHECK(operand.is_list == 1 && operand.dtype == PLAIT_STRING);
  char begun[64];
  snprintf(begun, sizeof begun, "%s", value_of("strings.words"));
  char* second = strchr(begun, ';');
  *second++ = 0;
  words[0] = strings_of(begun);
  words[1] = strings_of(second);
  OK(plait_tensor_list(PLAIT_STRING, words, 2, &list));
  plait_tensor* inputs[] = {strings_of(value_of("strings.x")), list};
  const char *names[] = {"x", "words"}, *wanted[] = {"joined", "more"};
  OK(plait_session_run(session, names, inputs, 2, wanted, results, 2));
  same_strings("joined", value_of("strings.joined"), results[0]);
  int64_t parts = 0;
  OK(plait_tensor_parts(results[1], &parts));
  CHECK(parts == 3);
  const char* expected[] = {begun, second, value_of("strings.joined")};
  for (int64_t i = 0; i < parts && i < 3; ++i) {
    OK(plait_tensor_part(results[1], i, &part));
    same_strings("part", expected[i], part);
    OK(plait_tensor_release(part));
  }
  plait_tensor* wrong[] = {inputs[0], inputs[0]};
  for (int i = 0; i < 2; ++i) OK(plait_tensor_release(results[i]));
  STATUS(PLAIT_INVALID_ARGUMENT, plait_session_run(session, names, wrong, 2, wanted, results, 2));
  for (int i = 0; i < 2; ++i) OK(plait_tensor_release(inputs[i]));
  for (int i = 0; i < 2; ++i) OK(plait_tensor_release(words[i]));
  OK(plait_session_release(session));
}

static void host_sampling(plait_generator* generator) {
  plait_request* request = submit(generator, ids_of("prompt"),
                                  OPTIONS("host_sampling", "true", "ignore_eos", "true", "max_tokens", "16"), NULL);
  same_ids("host sampling", ids_of("greedy"), pull(request, NULL, 0));
  OK(plait_request_release(request));
}

static plait_tensor* file_of(const char* directory, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s/%s", fixtures, directory, name);
  FILE* file = fopen(path, "rb");
  CHECK(file);
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  int64_t size = ftell(file);
  rewind(file);
  plait_tensor* out = NULL;
  OK(plait_tensor_copy(PLAIT_U8, &size, 1, NULL, size, &out));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(out, &view));
  CHECK(fread(view.data, 1, (size_t)size, file) == (size_t)size);
  fclose(file);
  return out;
}

static void model_from_memory(void) {
  const char* names[] = {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"};
  plait_tensor* contents[4];
  for (int i = 0; i < 4; ++i) contents[i] = file_of(value_of("model"), names[i]);
  plait_model* model = NULL;
  OK(plait_model_open_memory(names, contents, 4, NULL, &model));
  for (int i = 0; i < 4; ++i) OK(plait_tensor_release(contents[i]));
  plait_generator* generator = generator_of(model, GREEDY("max_tokens", "16"));
  OK(plait_model_release(model));
  plait_request* request = submit(generator, ids_of("prompt"), NULL, NULL);
  OK(plait_generator_release(generator));
  same_ids("memory", ids_of("greedy"), pull(request, NULL, 0));
  OK(plait_request_release(request));
}

static void mesh_of_threads(plait_model* model) {
  plait_generator* generator = generator_of(model, GREEDY("max_tokens", "16", "mesh", value_of("mesh")));
  plait_request* request = submit(generator, ids_of("prompt"), NULL, NULL);
  same_ids("mesh", ids_of("greedy"), pull(request, NULL, 0));
  OK(plait_request_release(request));
  OK(plait_generator_release(generator));
}

static void saved_conversation(plait_model* model, plait_generator* generator) {
  plait_request* begun =
      submit(generator, ids_of("prompt"), GREEDY("max_tokens", value_of("saved.max_tokens"), "keep", "true"), NULL);
  same_ids("saved, its beginning", ids_of("saved.begun"), pull(begun, NULL, 0));
  plait_tensor* saved = NULL;
  OK(plait_request_save(begun, &saved));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(saved, &view));
  plait_generator* other = generator_of(model, GREEDY("max_tokens", "16"));
  plait_request* restored = NULL;
  OK(plait_generator_restore(other, view.data, view.bytes, &restored));
  plait_request* more = submit(other, ids_of("saved.more"), NULL, restored);
  same_ids("saved, continued", ids_of("saved.continued"), pull(more, NULL, 0));
  OK(plait_request_release(more));
  OK(plait_request_release(restored));
  OK(plait_request_release(begun));
  OK(plait_tensor_release(saved));
  OK(plait_generator_release(other));
}

/* UTF-8 both ways. */
static void texts(plait_model* model) {
  const char* hex = value_of("utf8.hex");
  char text[64];
  int64_t length = (int64_t)strlen(hex) / 2;
  for (int64_t i = 0; i < length; ++i) {
    unsigned byte = 0;
    sscanf(hex + 2 * i, "%2x", &byte);
    text[i] = (char)byte;
  }
  plait_tokenizer* tokenizer = NULL;
  plait_tensor *encoded = NULL, *decoded = NULL;
  OK(plait_tokenizer_of_model(model, &tokenizer));
  OK(plait_tokenizer_encode(tokenizer, text, length, 0, &encoded));
  plait_view view = {.struct_size = sizeof view};
  OK(plait_tensor_view(encoded, &view));
  ids got = {{0}, view.elements < 64 ? view.elements : 64};
  memcpy(got.at, view.data, (size_t)got.count * sizeof got.at[0]);
  same_ids("UTF-8", ids_of("utf8.tokens"), got);
  OK(plait_tokenizer_decode(tokenizer, got.at, got.count, 0, &decoded));
  OK(plait_tensor_view(decoded, &view));
  CHECK(view.bytes == length && memcmp(view.data, text, (size_t)length) == 0);
  OK(plait_tensor_release(encoded));
  OK(plait_tensor_release(decoded));
  OK(plait_tokenizer_release(tokenizer));
}

/* Three steps on one document, by which its loss falls. */
static void fine_tune(plait_model* model, const char* mesh) {
  plait_options* options = OPTIONS("threads", "1", "optimizer", "sgd", "lr", value_of("train.lr"), "schedule",
                                   "constant", "weight_decay", "0", "mesh", mesh);
  plait_trainer* trainer = NULL;
  plait_tensor* document = NULL;
  OK(plait_trainer_create(model, options, &trainer));
  OK(plait_options_release(options));
  ids tokens = ids_of("train.ids");
  int64_t dims[] = {1, tokens.count};
  OK(plait_tensor_copy(PLAIT_I32, dims, 2, tokens.at, tokens.count * 4, &document));
  const char* next = value_of("train.losses");
  while (*next) {
    char* end = NULL;
    double expected = strtod(next, &end);
    plait_step step = {.struct_size = sizeof step};
    OK(plait_trainer_step(trainer, document, NULL, &step));
    CHECK(fabs(expected - step.loss) < 1e-3);
    if (fabs(expected - step.loss) >= 1e-3) printf("got %.5f\n", step.loss);
    next = *end == ',' ? end + 1 : end;
  }
  OK(plait_tensor_release(document));
  OK(plait_trainer_release(trainer));
}

/* Trained, saved, and used at the same time as a request without it. */
static void adapters(plait_model* model) {
  plait_options* options = OPTIONS("threads", "1", "lora", "8", "lr", value_of("adapter.lr"), "schedule", "constant");
  plait_trainer* trainer = NULL;
  plait_tensor* document = NULL;
  OK(plait_trainer_create(model, options, &trainer));
  OK(plait_options_release(options));
  ids tokens = ids_of("adapter.ids");
  int64_t dims[] = {1, tokens.count};
  OK(plait_tensor_copy(PLAIT_I32, dims, 2, tokens.at, tokens.count * 4, &document));
  for (long left = strtol(value_of("adapter.steps"), NULL, 10); left > 0; --left) {
    plait_step step = {.struct_size = sizeof step};
    OK(plait_trainer_step(trainer, document, NULL, &step));
  }
  char directory[128], path[256];
  snprintf(directory, sizeof directory, "%s/plait-adapter-XXXXXX", P_tmpdir);
  CHECK(mkdtemp(directory));
  OK(plait_trainer_save_adapter(trainer, directory));
  OK(plait_tensor_release(document));
  OK(plait_trainer_release(trainer));

  plait_generator* generator = generator_of(model, GREEDY("adapter_slots", "1", "adapter_rank", "8"));
  OK(plait_generator_add_adapter(generator, "taught", directory));
  plait_tensor* names = NULL;
  OK(plait_generator_adapters(generator, &names));
  CHECK(strcmp(plait_tensor_text(names), "[\"taught\"]") == 0);
  OK(plait_tensor_release(names));
  plait_request* with = submit(generator, ids_of("prompt"), GREEDY("max_tokens", "8", "adapter", "taught"), NULL);
  plait_request* without = submit(generator, ids_of("prompt"), GREEDY("max_tokens", "16"), NULL);
  same_ids("with the adapter", ids_of("adapter.tokens"), pull(with, NULL, 0));
  same_ids("without", ids_of("greedy"), pull(without, NULL, 0));
  OK(plait_request_release(with));
  OK(plait_request_release(without));
  OK(plait_generator_remove_adapter(generator, "taught"));
  options = GREEDY("adapter", "taught");
  ids prompt = ids_of("prompt");
  CHECK(plait_generator_submit_ids(generator, prompt.at, prompt.count, options, NULL, &with) == PLAIT_NOT_FOUND);
  OK(plait_options_release(options));
  OK(plait_generator_release(generator));
  for (int i = 0; i < 2; ++i) {
    snprintf(path, sizeof path, "%s/%s", directory, i ? "adapter_config.json" : "adapter_model.safetensors");
    CHECK(remove(path) == 0);
  }
  CHECK(remove(directory) == 0);
}

int main(int count, char** words) {
  if (count != 3) return 2;
  fixtures = words[1];
  read_list(words[2]);
  plait_model* model = open_model(value_of("model"));
  plait_generator* generator = generator_of(model, OPTIONS("running", "8"));
  stream_text(generator);
  batch_of_prompts(generator);
  requests_by_mailbox(generator);
  embeddings(generator);
  prompt_logprobs(generator);
  session_tensors();
  strings_and_lists();
  optional_sequence();
  host_sampling(generator);
  model_from_memory();
  mesh_of_threads(model);
  saved_conversation(model, generator);
  texts(model);
  fine_tune(model, "");
  fine_tune(model, value_of("train.mesh"));
  adapters(model);
  OK(plait_generator_release(generator));
  OK(plait_model_release(model));
  for (int i = 0; i < entry_count; ++i) free(entries[i].value);
  printf("%d failures\n", failures);
  return failures != 0;
}

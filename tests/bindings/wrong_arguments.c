/* The table of wrong_arguments.txt in C: each mistake gives its status and a message, and the process lives on.
 * Usage: wrong_arguments FIXTURES TABLE */
#include "tests/bindings/lists.h"

static plait_model* model;
static plait_generator* generator;
static plait_session* session;
static plait_tokenizer* tokenizer;
static plait_tensor* floats; /* f32 [2, 3] */

/* What the cases make without looking: they fail, so that it stays NULL, or it is released. */
static plait_tensor* made_tensor;
static plait_request* made_request;

static const int32_t fine[] = {1, 2, 3};

/* ---- Models and options ---- */

static plait_status open_path(const char* path) {
  plait_model* made = NULL;
  const plait_status status = plait_model_open(path, NULL, &made);
  CHECK(!made);
  return status;
}
static plait_status model_path_missing(void) { return open_path("no such model"); }
static plait_status model_path_null(void) { return open_path(NULL); }
static plait_status model_file_damaged(void) { return open_path(path_of("manifest.json")); }
static plait_status open_memory(const char* const* names, plait_tensor* const* contents, int64_t count) {
  plait_model* made = NULL;
  const plait_status status = plait_model_open_memory(names, contents, count, NULL, &made);
  CHECK(!made);
  return status;
}
static plait_status model_memory_empty(void) { return open_memory(NULL, NULL, 0); }
static plait_status model_memory_null(void) {
  const char* names[] = {"model.onnx"};
  plait_tensor* contents[] = {NULL};
  return open_memory(names, contents, 1);
}
static plait_status model_dump_unknown(void) { return plait_model_dump(model, "dance", &made_tensor); }
static plait_status model_closed(void) {
  plait_model* closed = open_model("gemma3-standard23");
  OK(plait_model_release(closed));
  return plait_model_info(closed, &made_tensor);
}

static plait_status make_trainer(plait_options* options) {
  plait_trainer* made = NULL;
  OK(plait_trainer_create(model, options, &made));
  OK(plait_options_release(options));
  const plait_status status = plait_trainer_wait(made, -1);
  OK(plait_trainer_release(made));
  return status;
}
static plait_status trainer_pipeline_unknown(void) { return make_trainer(OPTIONS("mesh", "pipeline=2", "pipeline", "2f2b")); }
static plait_status trainer_stages_many(void) { return make_trainer(OPTIONS("mesh", "pipeline=64")); }
static plait_status trainer_stages_without(void) { return make_trainer(OPTIONS("stages", "1,1")); }

static plait_status set(const char* key, const char* value) {
  plait_options* options = OPTIONS("seed", "1");
  const plait_status status = plait_options_set(options, key, value, -1);
  OK(plait_options_release(options));
  return status;
}
static plait_status options_key_unknown(void) { return set("temprature", "1"); }
static plait_status options_key_null(void) { return set(NULL, "1"); }
static plait_status options_value_wrong(void) { return set("temperature", "warm"); }
static plait_status options_value_null(void) { return set("seed", NULL); }

/* ---- Requests ---- */

static plait_status submit(const int32_t* ids, int64_t count, plait_options* options, plait_request* parent) {
  const plait_status status = plait_generator_submit_ids(generator, ids, count, options, parent, &made_request);
  CHECK(!made_request);
  return status;
}
static plait_status options_of_another(void) {
  plait_options* options = OPTIONS("threads", "1");
  const plait_status status = submit(fine, 3, options, NULL);
  OK(plait_options_release(options));
  return status;
}
static plait_status options_closed(void) {
  plait_options* options = OPTIONS("seed", "1");
  OK(plait_options_release(options));
  return submit(fine, 3, options, NULL);
}
static plait_status submit_text(const char* text) {
  return plait_generator_submit_text(generator, text, -1, NULL, NULL, &made_request);
}
static plait_status text_surrogate_half(void) { return submit_text("a\xED\xA0\x80z"); }
static plait_status prompt_null(void) { return submit_text(NULL); }
static plait_status prompt_ids_null(void) { return submit(NULL, 1, NULL, NULL); }
static plait_status prompt_ids_empty(void) { return submit(NULL, 0, NULL, NULL); }
static plait_status prompt_ids_negative(void) { return submit((const int32_t[]){-1}, 1, NULL, NULL); }
static plait_status prompt_ids_large(void) { return submit((const int32_t[]){512}, 1, NULL, NULL); }
static plait_status prompt_long(void) {
  const int32_t ids[600] = {0};
  return submit(ids, 600, NULL, NULL);
}
static plait_status chat_no_json(void) {
  return plait_generator_submit_chat(generator, "no json", -1, NULL, &made_request);
}
static plait_status restore(const char* bytes, int64_t size) {
  return plait_generator_restore(generator, bytes, size, &made_request);
}
static plait_status restore_nonsense(void) { return restore("nonsense!", 9); }
static plait_status restore_empty(void) { return restore(NULL, 0); }
static plait_status generator_closed(void) {
  plait_generator* closed = generator_of(model, OPTIONS("seed", "1"));
  OK(plait_generator_release(closed));
  return plait_generator_submit_ids(closed, fine, 3, NULL, NULL, &made_request);
}

/* A request of one token, for a call that is wrong about it. */
static plait_request* one_token(void) {
  plait_options* options = GREEDY("max_tokens", "1");
  plait_request* out = NULL;
  OK(plait_generator_submit_ids(generator, fine, 3, options, NULL, &out));
  OK(plait_options_release(options));
  return out;
}
static plait_status ended(plait_request* request, plait_status status) {
  OK(plait_request_release(request));
  return status;
}
static plait_status parent_not_kept(void) {
  plait_request* parent = one_token();
  return ended(parent, submit(fine, 3, NULL, parent));
}
static plait_status request_push_unasked(void) {
  plait_request* request = one_token();
  return ended(request, plait_request_push(request, 1));
}
static plait_status request_result_of_text(void) {
  plait_request* request = one_token();
  return ended(request, plait_request_result(request, &made_tensor));
}
static plait_status request_save_not_kept(void) {
  plait_request* request = one_token();
  return ended(request, plait_request_save(request, &made_tensor));
}
static plait_status request_closed(void) {
  plait_event event = {.struct_size = sizeof event};
  plait_request* request = one_token();
  OK(plait_request_release(request));
  return plait_request_next(request, -1, &event);
}

/* ---- Tensors ---- */

static plait_status copy(plait_dtype dtype, const int64_t* dims, int64_t rank) {
  static const char memory[24] = "";
  const plait_status status = plait_tensor_copy(dtype, dims, rank, memory, sizeof memory, &made_tensor);
  CHECK(!made_tensor);
  return status;
}
static plait_status tensor_bytes_few(void) { return copy(PLAIT_F32, (const int64_t[]){2, 4}, 2); }
static plait_status tensor_dims_negative(void) { return copy(PLAIT_F32, (const int64_t[]){-1, 3}, 2); }
static plait_status tensor_dims_huge(void) { return copy(PLAIT_F32, (const int64_t[]){INT64_MAX / 2, 16}, 2); }
static plait_status tensor_dims_null(void) { return copy(PLAIT_F32, NULL, 2); }
static plait_status tensor_rank_nine(void) {
  return copy(PLAIT_F32, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 2, 3}, 9);
}
static plait_status tensor_dtype_none(void) { return copy(PLAIT_NONE, (const int64_t[]){6}, 1); }
/* It comes as an empty text, with the reason; the other languages throw. */
static plait_status tensor_no_text(void) {
  return plait_tensor_text(floats)[0] == '\0' ? PLAIT_INVALID_ARGUMENT : PLAIT_OK;
}
static plait_tensor* closed_tensor(void) {
  const int64_t id = 0, dims[] = {1, 1};
  plait_tensor* out = NULL;
  OK(plait_tensor_copy(PLAIT_I64, dims, 2, &id, sizeof id, &out));
  OK(plait_tensor_release(out));
  return out;
}
static plait_status tensor_closed(void) {
  plait_view view = {.struct_size = sizeof view};
  return plait_tensor_view(closed_tensor(), &view);
}

/* ---- Sessions ---- */

/* Runs the session, whose inputs are right but for one, which `name` and `value` replace; with `added` they come in addition. */
static plait_status run(const char* name, plait_tensor* value, int added, const char* output) {
  const char* names[64];
  plait_tensor* values[64];
  int64_t count = 0, outputs = 0, owned = 0;
  OK(plait_session_count(session, &count, &outputs));
  for (; owned < count && owned < 60; ++owned) {
    plait_operand operand = {.struct_size = sizeof operand};
    OK(plait_session_input(session, owned, &operand));
    const int past = strstr(operand.name, "past") != NULL;
    const int64_t dims[] = {1, past ? operand.dims[1] : 1, 0, past ? operand.dims[3] : 0}, id = 1;
    names[owned] = operand.name;
    OK(plait_tensor_copy(past ? PLAIT_F32 : PLAIT_I64, dims, past ? 4 : 2, &id, past ? 0 : sizeof id,
                         &values[owned]));
  }
  plait_tensor* first = values[0];
  if (name) names[added ? count : 0] = name;
  if (name) values[added ? count : 0] = value;
  plait_tensor* results[] = {NULL};
  const plait_status status = plait_session_run(session, names, values, count + (name && added), &output, results, 1);
  CHECK(!results[0]);
  values[0] = first;
  for (int64_t i = 0; i < owned; ++i) OK(plait_tensor_release(values[i]));
  return status;
}
static const char* first_input(void) {
  static plait_operand operand;
  operand.struct_size = sizeof operand;
  OK(plait_session_input(session, 0, &operand));
  return operand.name;
}
static plait_status session_input_unknown(void) { return run("no such input", floats, 1, "logits"); }
static plait_status session_input_missing(void) {
  const char* output = "logits";
  return plait_session_run(session, NULL, NULL, 0, &output, &made_tensor, 1);
}
static plait_status session_input_null(void) { return run(first_input(), NULL, 0, "logits"); }
static plait_status session_input_dtype(void) { return run(first_input(), floats, 0, "logits"); }
static plait_status session_input_closed(void) { return run(first_input(), closed_tensor(), 0, "logits"); }
static plait_status session_output_unknown(void) { return run(NULL, NULL, 0, "no such output"); }
static plait_status session_closed(void) {
  int64_t inputs = 0, outputs = 0;
  plait_session* closed = NULL;
  OK(plait_session_create(model, NULL, &closed));
  OK(plait_session_release(closed));
  return plait_session_count(closed, &inputs, &outputs);
}

/* ---- Tokenizers ---- */

static plait_status tokenizer_directory_missing(void) {
  plait_tokenizer* made = NULL;
  return plait_tokenizer_open("no such directory", NULL, &made);
}
static plait_status tokenizer_id_negative(void) { return plait_tokenizer_piece(tokenizer, -1, &made_tensor); }
static plait_status tokenizer_piece_unknown(void) {
  int32_t id = 0;
  return plait_tokenizer_id(tokenizer, "no such piece", -1, &id);
}
static plait_status tokenizer_closed(void) {
  plait_tokenizer* closed = NULL;
  OK(plait_tokenizer_of_model(model, &closed));
  OK(plait_tokenizer_release(closed));
  return plait_tokenizer_encode(closed, "x", -1, 0, &made_tensor);
}

/* ---- The table ---- */

#define CASE(first, rest) \
  { #first "." #rest, first##_##rest }

static const struct {
  const char* name; /* '_' for the dots behind the first */
  plait_status (*call)(void);
} cases[] = {
    CASE(model, path_missing),
    CASE(model, path_null),
    CASE(model, file_damaged),
    CASE(model, memory_empty),
    CASE(model, memory_null),
    CASE(model, dump_unknown),
    CASE(model, closed),
    CASE(trainer, pipeline_unknown),
    CASE(trainer, stages_many),
    CASE(trainer, stages_without),
    CASE(options, key_unknown),
    CASE(options, key_null),
    CASE(options, value_wrong),
    CASE(options, value_null),
    CASE(options, of_another),
    CASE(options, closed),
    CASE(text, surrogate_half),
    CASE(prompt, null),
    CASE(prompt, ids_null),
    CASE(prompt, ids_empty),
    CASE(prompt, ids_negative),
    CASE(prompt, ids_large),
    CASE(prompt, long),
    CASE(chat, no_json),
    CASE(parent, not_kept),
    CASE(restore, nonsense),
    CASE(restore, empty),
    CASE(generator, closed),
    CASE(request, push_unasked),
    CASE(request, result_of_text),
    CASE(request, save_not_kept),
    CASE(request, closed),
    CASE(tensor, bytes_few),
    CASE(tensor, dims_negative),
    CASE(tensor, dims_huge),
    CASE(tensor, dims_null),
    CASE(tensor, rank_nine),
    CASE(tensor, dtype_none),
    CASE(tensor, no_text),
    CASE(tensor, closed),
    CASE(session, input_unknown),
    CASE(session, input_missing),
    CASE(session, input_null),
    CASE(session, input_dtype),
    CASE(session, input_closed),
    CASE(session, output_unknown),
    CASE(session, closed),
    CASE(tokenizer, directory_missing),
    CASE(tokenizer, id_negative),
    CASE(tokenizer, piece_unknown),
    CASE(tokenizer, closed),
};

/* What C cannot do wrong: its texts end at a NUL, and it reads memory as it likes. */
static const char* const not_in_c[] = {"model.path.nul", "tensor.read.as.another", "tensor.view.outside"};

static int is_named(const char* name, const char* key) {
  size_t i = 0;
  for (; name[i] && key[i]; ++i)
    if (name[i] != key[i] && !(name[i] == '_' && key[i] == '.')) return 0;
  return name[i] == key[i];
}

static void check(const entry* row) {
  for (size_t i = 0; i < sizeof not_in_c / sizeof not_in_c[0]; ++i)
    if (strcmp(not_in_c[i], row->key) == 0) return;
  const char* expected = strcmp(row->value, "null") == 0 ? "INVALID_ARGUMENT" : row->value;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    if (!is_named(cases[i].name, row->key)) continue;
    const char* got = plait_status_name(cases[i].call());
    int same = plait_last_error()[0] != '\0';
    for (size_t at = 0; expected[at] || got[at]; ++at) same = same && (expected[at] | 0x20) == (got[at] | 0x20);
    if (!same)
      ++failures, printf("%s is %s, expected %s (last error: %s)\n", row->key, got, expected, plait_last_error());
    return;
  }
  ++failures;
  printf("C has no %s\n", row->key);
}

int main(int count, char** words) {
  if (count != 3) return 2;
  fixtures = words[1];
  read_list(words[2]);
  const float zeros[6] = {0};
  model = open_model("gemma3-standard23");
  generator = generator_of(model, OPTIONS("seed", "1"));
  OK(plait_session_create(model, NULL, &session));
  OK(plait_tokenizer_of_model(model, &tokenizer));
  OK(plait_tensor_copy(PLAIT_F32, (const int64_t[]){2, 3}, 2, zeros, sizeof zeros, &floats));
  for (int i = 0; i < entry_count; ++i) check(&entries[i]);
  CHECK(entry_count == (int)(sizeof cases / sizeof cases[0] + sizeof not_in_c / sizeof not_in_c[0]));
  OK(plait_tensor_release(floats));
  OK(plait_tokenizer_release(tokenizer));
  OK(plait_session_release(session));
  OK(plait_generator_release(generator));
  OK(plait_model_release(model));
  for (int i = 0; i < entry_count; ++i) free(entries[i].value);
  printf("%d mistakes, %d failures\n", entry_count, failures);
  return failures != 0;
}

// Whatever is called in whatever order, with whatever handles, from one thread or two: each call of the C interface
// answers with a status, and touches no memory that is gone. An input is a program: numbers of calls, each with where
// it finds its arguments and puts its handle. Not called: plait_world_open, which starts MPI; other calls of worlds
// get invalid handles.
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <thread>

#include "tests/fuzz/c_api_machine.h"

namespace plait::fuzz {
namespace {

constexpr const char* fixture = PLAIT_FIXTURES "/gemma3-standard23";
constexpr const char* under_a_file =
    PLAIT_FIXTURES "/gemma3-standard23/model.onnx/x";  // no directory can be made there
constexpr const char* conversation = R"([{"role": "user", "content": "x"}])";

/// A directory with an adapter of the fixture, until the process ends.
class AdapterFiles {
 public:
  static const char* path() {
    static const AdapterFiles files;
    return files.path_.c_str();
  }
  ~AdapterFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  AdapterFiles() : path_(std::filesystem::temp_directory_path() / ("plait-fuzz-" + std::to_string(getpid()))) {
    plait_options* small = nullptr;
    plait_model* opened = nullptr;
    plait_trainer* made = nullptr;
    plait_options_create(&small);
    plait_options_set(small, "lora", "2", -1);
    if (plait_model_open(fixture, nullptr, &opened) != PLAIT_OK ||
        plait_trainer_create(opened, small, &made) != PLAIT_OK ||
        plait_trainer_save_adapter(made, path_.c_str()) != PLAIT_OK)
      broken("an adapter", "it cannot be made");
    plait_trainer_release(made);
    plait_model_release(opened);
    plait_options_release(small);
  }

  const std::string path_;
};

struct Call {
  const char* name;
  void (*run)(Machine& m);
};

constexpr Call call(const char* name, void (*run)(Machine& m)) { return {name, run}; }

// Arguments are read in order: they stand in braces.
#define DO(NAME, ...) call(#NAME, [](Machine& m) { checked(#NAME, std::apply(NAME, std::tuple{__VA_ARGS__})); })
#define MAKE(KIND, NAME, ...) \
  call(#NAME, [](Machine& m) { m.make<plait_##KIND>(KIND, #NAME, NAME, std::tuple{__VA_ARGS__}); })

struct Setting {
  const char *key, *value;
};
// Values that cost little, of each type and for each object; wrong ones among them.
constexpr Setting settings[] = {
    {"max_tokens", "5"},    {"temperature", "0.7"}, {"top_k", "3"},         {"samples", "3"},
    {"keep", "true"},       {"stop", " the"},       {"logprobs", "2"},      {"kind", "embed"},
    {"kind", "score"},      {"pooling", "mean"},    {"seed", "12"},         {"host_sampling", "true"},
    {"ignore_eos", "true"}, {"min_tokens", "9"},    {"logit_bias", "5:-1"}, {"deadline_ms", "1"},
    {"stop_tokens", "2,5"}, {"background", "true"}, {"threads", "1"},       {"tokenizer", "late"},
    {"cache_bytes", "1M"},  {"cache_bytes", "100"}, {"page_tokens", "4"},   {"queue", "1"},
    {"running", "2"},       {"step_tokens", "8"},   {"trace", "true"},      {"profile", "true"},
    {"context", "16"},      {"mesh", "tensor=2"},   {"dtype", "bf16"},      {"mesh", "tensor=3"},
    {"off", "fuse"},        {"lora", "2"},          {"isa", "reference"},   {"micro_batch", "8"},
    {"optimizer", "sgd"},   {"temprature", "1"},    {"seed", "one"},        {"seed", nullptr},
    {nullptr, "1"},         {"tools", "[]"},        {"frozen", "true"},     {"adapter", "one"},
    {"adapter_slots", "2"}, {"adapter_rank", "2"},  {"loss", "logits"},
};
// Of these the input may have values of its own: they ask for no gigabytes, and name no files.
constexpr const char* free_keys[] = {"temperature", "top_p", "stop",  "logit_bias",
                                     "stop_tokens", "kind",  "tools", "chat_variables"};

void set_option(Machine& m) {
  plait_options* given = m.options_();
  Setting setting = settings[m.byte() % std::size(settings)];
  if (m.byte() > 200) setting = {free_keys[m.byte() % std::size(free_keys)], m.text()};
  checked("plait_options_set",
          plait_options_set(given, setting.key, setting.value, m.one_of<int64_t>({-1, -1, -1, 1, 0, -2})));
}

/// A tensor whose memory, if it is borrowed, is the fuzzer's forever.
template <class Function>
void make_tensor(Machine& m, const char* name, Function function) {
  static std::array<uint64_t, 64> memory;
  const auto dtype = static_cast<plait_dtype>(m.one_of({1, 2, 3, 6, 6, 7, 7, 8, 8, 9, 10, 16, 21, 0, 99, -1}));
  static thread_local int64_t dims[9];
  for (int64_t& dim : dims) dim = m.one_of<int64_t>({1, 1, 1, 2, 4, 8, 0, -1, int64_t{1} << 62});
  const int64_t rank = m.one_of<int64_t>({2, 2, 2, 1, 0, 3, 8, 9, -1});
  int64_t bytes = dtype == PLAIT_I64 ? 8 : dtype == PLAIT_I32 || dtype == PLAIT_F32 ? 4 : dtype == PLAIT_F16 ? 2 : 1;
  for (int64_t i = 0; i < rank && i < 8; ++i) bytes *= std::clamp<int64_t>(dims[i], 0, 8);
  bytes = m.byte() == 255 ? -1 : std::min<int64_t>(bytes, sizeof memory);
  m.make<plait_tensor>(
      tensor, name, function,
      std::tuple{dtype, static_cast<const int64_t*>(dims), rank, static_cast<void*>(memory.data()), bytes});
}

void look_at_tensor(Machine& m) {
  plait_tensor* given = m.tensor_();
  auto* view = m.filled<plait_view>();
  const plait_status status = checked("plait_tensor_view", plait_tensor_view(given, view));
  if (!m.alone) return;
  if (status == PLAIT_OK) read_through(view->data, view->bytes);
  read_through(plait_tensor_text(given), 1);
}

void pull(Machine& m) {
  plait_request* given = m.request_();
  auto* event = m.filled<plait_event>();
  const int64_t timeout = m.timeout();
  for (int count = m.one_of({1, 1, 4, 16}); count > 0; --count) {
    if (checked("plait_request_next", plait_request_next(given, timeout, event)) != PLAIT_OK) return;
    read_through(event->text, event->text_length + 1);
    read_through(event->top_tokens, event->top_count * int64_t{4});
    read_through(event->top_logprobs, event->top_count * int64_t{4});
    read_through(event->logits, event->logits_count * int64_t{4});
    if (event->kind == PLAIT_EVENT_LOGITS) checked("plait_request_push", plait_request_push(given, m.id()));
  }
}

void list_tensors(Machine& m) {
  plait_tensor* parts[] = {m.tensor_(), m.tensor_()};
  m.make<plait_tensor>(tensor, "plait_tensor_list", plait_tensor_list,
                       std::tuple{static_cast<plait_dtype>(m.one_of({1, 7, 8, 21, 99})), static_cast<plait_tensor* const*>(parts),
                                  m.one_of<int64_t>({0, 1, 2, -1})});
}

void open_from_memory(Machine& m) {
  const char* names[] = {"model.onnx", m.one_of<const char*>({"model.onnx.data", "../x", "", "/x", nullptr})};
  plait_tensor* contents[] = {m.tensor_(), m.tensor_()};
  m.make<plait_model>(model, "plait_model_open_memory", plait_model_open_memory,
                      std::tuple{static_cast<const char* const*>(names), static_cast<plait_tensor* const*>(contents),
                                 m.one_of<int64_t>({0, 1, 2, -1}), m.options_()});
}

void run_session(Machine& m) {
  const char* names[] = {"input_ids",
                         m.one_of<const char*>({"attention_mask", "position_ids", "nothing", "", nullptr})};
  plait_tensor* inputs[] = {m.tensor_(), m.tensor_()};
  const char* wanted[] = {m.one_of<const char*>({"logits", "nothing", nullptr})};
  m.make<plait_tensor>(
      tensor, "plait_session_run",
      [&](plait_session* given, int64_t count, plait_tensor** out) {
        return plait_session_run(given, names, inputs, count, wanted, out, 1);
      },
      std::tuple{m.session_(), m.one_of<int64_t>({2, 1, 0, -1})});
}

/// A step, or an evaluation, of a model with a loss of its own.
template <class Function, class Out>
void train_on_inputs(Machine& m, const char* name, Function function, Out* out) {
  const char* names[] = {"input_ids", m.one_of<const char*>({"labels", "nothing", "input_ids", nullptr})};
  plait_tensor* inputs[] = {m.tensor_(), m.tensor_()};
  checked(name, function(m.trainer_(), names, inputs, m.one_of<int64_t>({2, 1, 0, -1}), out));
}

template <class Function>
void look_at_operand(Machine& m, const char* name, Function function) {
  plait_session* given = m.session_();
  const int64_t index = m.one_of<int64_t>({0, 1, 2, 7, -1});
  auto* operand = m.filled<plait_operand>();
  if (checked(name, function(given, index, operand)) == PLAIT_OK && m.alone) read_through(operand->name, 1);
}

void next_log_line(Machine& m) {
  plait_model* given = m.model_();
  auto* level = m.out<plait_log_level>();
  plait_tensor* text = nullptr;
  checked("plait_log_next", plait_log_next(given, level, &text));
  release(tensor, text);
}

void look_at_constants(Machine& m) {
  for (const char* text : {plait_version(), plait_status_name(static_cast<plait_status>(m.byte() - 9)),
                           plait_last_error(), plait_last_hint()})
    read_through(text, static_cast<int64_t>(std::strlen(text)) + 1);
}

constexpr Call calls[] = {
    {"constants", look_at_constants},
    MAKE(options, plait_options_create),
    {"plait_options_set", set_option},
    DO(plait_options_set_tensor, m.options_(),
       m.one_of<const char*>({"inputs_embeds", "image_features", "image_grid_thw", "input_features", "seed", "none", nullptr}),
       m.tensor_()),
    DO(plait_options_release, m.options_()),
    MAKE(tensor, plait_options_describe),
    {"plait_tensor_copy", [](Machine& m) { make_tensor(m, "plait_tensor_copy", plait_tensor_copy); }},
    {"plait_tensor_borrow", [](Machine& m) { make_tensor(m, "plait_tensor_borrow", plait_tensor_borrow); }},
    {"plait_tensor_view", look_at_tensor},
    DO(plait_tensor_release, m.tensor_()),
    MAKE(tensor, plait_tensor_read, m.one_of<const char*>({fixture, "no file", nullptr}), static_cast<plait_dtype>(m.byte() % 28)),
    {"plait_tensor_list", list_tensors},
    DO(plait_tensor_parts, m.tensor_(), m.out<int64_t>()),
    MAKE(tensor, plait_tensor_part, m.tensor_(), m.one_of<int64_t>({0, 1, -1})),
    DO(plait_tensor_write, m.tensor_(), m.one_of<const char*>({under_a_file, nullptr})),
    MAKE(model, plait_model_open, m.text(fixture), m.options_()),
    {"plait_model_open_memory", open_from_memory},
    DO(plait_model_wait, m.model_(), m.timeout()),
    DO(plait_model_progress, m.model_(), m.out<double>()),
    DO(plait_model_cancel, m.model_()),
    MAKE(tensor, plait_model_info, m.model_()),
    MAKE(tensor, plait_model_dump, m.model_(), m.one_of<const char*>({"import", "raise", "no pass", nullptr})),
    MAKE(tensor, plait_model_plan, m.model_(), m.options_()),
    MAKE(tensor, plait_model_plan_training, m.model_(), m.options_()),
    MAKE(tensor, plait_model_best_plan, m.model_(), m.options_()),
    DO(plait_model_export, m.model_(), m.one_of<const char*>({under_a_file, nullptr}), m.options_()),
    {"plait_log_next", next_log_line},
    DO(plait_model_release, m.model_()),
    MAKE(tensor, plait_ops, m.options_()),
    MAKE(tensor, plait_system, m.options_()),
    MAKE(tensor, plait_machine, m.options_()),
    MAKE(tensor, plait_plan, m.options_()),
    MAKE(tokenizer, plait_tokenizer_of_model, m.model_()),
    MAKE(tokenizer, plait_tokenizer_open, m.text(fixture), m.options_()),
    MAKE(tensor, plait_tokenizer_encode, m.tokenizer_(), m.text(), m.length(), m.flag()),
    MAKE(tensor, plait_tokenizer_decode, m.tokenizer_(), m.ids(), m.length(), m.flag()),
    MAKE(tensor, plait_tokenizer_chat, m.tokenizer_(), m.text(conversation), m.length(), m.options_()),
    MAKE(tensor, plait_tokenizer_piece, m.tokenizer_(), m.id()),
    MAKE(tensor, plait_tokenizer_bytes, m.tokenizer_(), m.id()),
    DO(plait_tokenizer_id, m.tokenizer_(), m.text(), m.length(), m.out<int32_t>()),
    DO(plait_tokenizer_info, m.tokenizer_(), m.filled<plait_tokenizer_facts>()),
    DO(plait_tokenizer_cancel, m.tokenizer_()),
    DO(plait_tokenizer_release, m.tokenizer_()),
    DO(plait_world_rank, m.world_(), m.out<int32_t>(), m.out<int32_t>()),
    DO(plait_world_serve, m.world_()),
    DO(plait_world_close, m.world_()),
    DO(plait_world_release, m.world_()),
    MAKE(generator, plait_generator_create, m.model_(), m.options_()),
    MAKE(generator, plait_generator_create_on, m.world_(), m.model_(), m.options_()),
    DO(plait_generator_wait, m.generator_(), m.timeout()),
    DO(plait_generator_progress, m.generator_(), m.out<double>()),
    DO(plait_generator_cancel, m.generator_()),
    DO(plait_generator_add_adapter, m.generator_(), m.one_of<const char*>({"one", "two", "", nullptr}),
       m.one_of<const char*>({AdapterFiles::path(), fixture, nullptr})),
    DO(plait_generator_remove_adapter, m.generator_(), m.one_of<const char*>({"one", "two", nullptr})),
    MAKE(tensor, plait_generator_adapters, m.generator_()),
    MAKE(request, plait_generator_submit_text, m.generator_(), m.text(), m.length(), m.options_(), m.parent_()),
    MAKE(request, plait_generator_submit_ids, m.generator_(), m.ids(), m.length(), m.options_(), m.parent_()),
    MAKE(request, plait_generator_submit_chat, m.generator_(), m.text(conversation), m.length(), m.options_()),
    MAKE(request, plait_generator_restore, m.generator_(), static_cast<const void*>(m.text()), m.length()),
    DO(plait_generator_statistics, m.generator_(), m.filled<plait_generator_stats>()),
    MAKE(tensor, plait_generator_profile, m.generator_()),
    MAKE(tensor, plait_generator_histograms, m.generator_()),
    MAKE(tensor, plait_generator_ranks, m.generator_()),
    MAKE(tensor, plait_generator_trace, m.generator_()),
    DO(plait_generator_release, m.generator_()),
    {"plait_request_next", pull},
    DO(plait_request_push, m.request_(), m.id()),
    DO(plait_request_cancel, m.request_()),
    DO(plait_request_usage, m.request_(), m.filled<plait_usage>()),
    MAKE(tensor, plait_request_result, m.request_()),
    MAKE(tensor, plait_request_save, m.request_()),
    DO(plait_request_release, m.request_()),
    MAKE(tensor, plait_options_values, m.options_(), m.one_of<const char*>({"server", "generator", "request", "none", nullptr})),
    MAKE(mailbox, plait_mailbox_create),
    DO(plait_request_attach, m.request_(), m.mailbox_(), int64_t{m.byte()}),
    DO(plait_mailbox_next, m.mailbox_(), m.timeout(), m.out<int64_t>()),
    DO(plait_mailbox_post, m.mailbox_(), int64_t{m.byte()}),
    DO(plait_mailbox_release, m.mailbox_()),
    MAKE(trainer, plait_trainer_create, m.model_(), m.options_()),
    {"plait_trainer_step_inputs",
     [](Machine& m) {
       train_on_inputs(m, "plait_trainer_step_inputs", plait_trainer_step_inputs, m.filled<plait_step>());
     }},
    {"plait_trainer_evaluate_inputs",
     [](Machine& m) {
       train_on_inputs(m, "plait_trainer_evaluate_inputs", plait_trainer_evaluate_inputs, m.filled<plait_evaluation>());
     }},
    MAKE(trainer, plait_trainer_create_on, m.world_(), m.model_(), m.options_()),
    DO(plait_trainer_wait, m.trainer_(), m.timeout()),
    DO(plait_trainer_progress, m.trainer_(), m.out<double>()),
    DO(plait_trainer_cancel, m.trainer_()),
    DO(plait_trainer_next, m.trainer_(), m.timeout(), m.filled<plait_step>()),
    DO(plait_trainer_step, m.trainer_(), m.tensor_(), m.tensor_(), m.filled<plait_step>()),
    MAKE(tensor, plait_trainer_forward, m.trainer_(), m.tensor_()),
    DO(plait_trainer_backward, m.trainer_(), m.tensor_(), m.tensor_()),
    DO(plait_trainer_update, m.trainer_(), m.filled<plait_step>()),
    DO(plait_trainer_evaluate, m.trainer_(), m.one_of<const char*>({"no such file", "", nullptr}),
       m.filled<plait_evaluation>()),
    DO(plait_trainer_evaluate_ids, m.trainer_(), m.tensor_(), m.tensor_(), m.filled<plait_evaluation>()),
    DO(plait_trainer_save, m.trainer_()),
    DO(plait_trainer_export, m.trainer_(), m.one_of<const char*>({under_a_file, nullptr})),
    DO(plait_trainer_save_adapter, m.trainer_(), m.one_of<const char*>({under_a_file, nullptr})),
    DO(plait_trainer_release, m.trainer_()),
    MAKE(session, plait_session_create, m.model_(), m.options_()),
    DO(plait_session_count, m.session_(), m.out<int64_t>(), m.out<int64_t>()),
    {"plait_session_input", [](Machine& m) { look_at_operand(m, "plait_session_input", plait_session_input); }},
    {"plait_session_output", [](Machine& m) { look_at_operand(m, "plait_session_output", plait_session_output); }},
    {"plait_session_run", run_session},
    DO(plait_session_cancel, m.session_()),
    MAKE(tensor, plait_session_trace, m.session_()),
    DO(plait_session_release, m.session_()),
};

void run(Pool& pool, const uint8_t* data, size_t size, bool alone) {
  Machine machine(pool, data, size, alone);
  while (!machine.ended()) calls[machine.byte() % std::size(calls)].run(machine);
}

/// What every input begins with, in slot 0: made once, and again when an input has released it.
class Beginning {
 public:
  static void put_into(Pool& pool) {
    static Beginning& instance = *new Beginning;
    instance.renew();
    for (int kind = 0; kind < kinds; ++kind)
      pool.handles[static_cast<size_t>(kind)][0] = instance.handles_[static_cast<size_t>(kind)];
  }

 private:
  template <class Handle>
  Handle* at(Kind kind) {
    return static_cast<Handle*>(handles_[kind]);
  }
  template <class Handle, class Function, class... Arguments>
  void renew(Kind kind, plait_status status, Function function, Arguments... arguments) {
    if (status == PLAIT_OK) return;
    Handle* made = nullptr;
    if (function(arguments..., &made) != PLAIT_OK) broken("what inputs begin with", "it cannot be made");
    handles_[kind] = made;
  }

  void renew() {
    plait_tokenizer_facts facts{sizeof facts};
    int64_t inputs = 0, outputs = 0;
    plait_view view{sizeof view};
    const int32_t ids[] = {5, 6, 7, 8};
    const int64_t dims[] = {1, 4};
    // All but what is asked for is as small as it may be.
    plait_options* small = nullptr;
    plait_options_create(&small);
    plait_options_set(small, "threads", "1", -1);
    renew<plait_options>(options, plait_options_set(at<plait_options>(options), "max_tokens", "6", -1),
                         plait_options_create);
    renew<plait_tensor>(tensor, plait_tensor_view(at<plait_tensor>(tensor), &view), plait_tensor_copy, PLAIT_I32,
                        static_cast<const int64_t*>(dims), int64_t{2}, static_cast<const void*>(ids),
                        int64_t{sizeof ids});
    renew<plait_model>(model, plait_model_wait(at<plait_model>(model), -1), plait_model_open, fixture, nullptr);
    auto* opened = at<plait_model>(model);
    renew<plait_tokenizer>(tokenizer, plait_tokenizer_info(at<plait_tokenizer>(tokenizer), &facts),
                           plait_tokenizer_of_model, opened);
    renew<plait_session>(session, plait_session_count(at<plait_session>(session), &inputs, &outputs),
                         plait_session_create, opened, small);
    renew<plait_trainer>(trainer, plait_trainer_wait(at<plait_trainer>(trainer), -1), plait_trainer_create, opened,
                         small);
    plait_options_set(small, "cache_bytes", "1M", -1);
    plait_options_set(small, "max_tokens", "12", -1);
    plait_options_set(small, "adapter_slots", "1", -1);
    plait_options_set(small, "adapter_rank", "2", -1);
    renew<plait_generator>(generator, plait_generator_wait(at<plait_generator>(generator), -1),
                           plait_generator_create, opened, small);
    plait_options_release(small);
  }

  std::array<void*, kinds> handles_{};
};

/// A seed by the names of its calls, each with its bytes.
std::string program(std::initializer_list<std::pair<std::string_view, std::string_view>> steps) {
  std::string out(1, '\0');  // one thread
  for (const auto& [name, bytes] : steps) {
    size_t number = 0;
    while (calls[number].name != name) ++number;
    out += static_cast<char>(number);
    out += bytes;
  }
  return out;
}

}  // namespace

std::vector<std::string> seeds() {
  using std::string_view_literals::operator""sv;
  // Bytes: a handle is 0 for slot 0 to 3 for slot 3; after the arguments of a call that makes a handle stand 0 and
  // its slot.
  const std::string generates = program({
      {"plait_generator_submit_ids", "\0\3\5\0\6\0\7\0\0\0\0\0\0"sv},
      {"plait_request_next", "\0\0\3\3"sv},
      {"plait_request_usage", "\0\0"sv},
      {"plait_generator_statistics", "\0\0"sv},
      {"plait_request_release", "\0"sv},
  });
  const std::string continues = program({
      {"plait_options_set", "\0\4\0\0"sv},  // keep
      {"plait_generator_submit_text", "\0\2ab\0\0\0\0\0"sv},
      {"plait_request_next", "\0\0\3\3"sv},
      {"plait_request_next", "\0\0\3\3"sv},
      {"plait_request_save", "\0\0\1"sv},
      {"plait_generator_submit_ids", "\0\1\5\0\0\0\300\0\0\1"sv},
      {"plait_request_cancel", "\1"sv},
      {"plait_generator_release", "\0"sv},
      {"plait_request_next", "\1\0\3\3"sv},
  });
  const std::string adapts = program({
      {"plait_generator_add_adapter", "\0\0\0"sv},
      {"plait_options_set", "\0\53\0\0"sv},  // adapter
      {"plait_generator_submit_ids", "\0\2\5\0\6\0\0\0\0\0\0"sv},
      {"plait_generator_remove_adapter", "\0\0"sv},
      {"plait_request_next", "\0\0\3\3"sv},
      {"plait_generator_adapters", "\0\0\1"sv},
  });
  const std::string samples_itself = program({
      {"plait_options_set", "\0\13\0\0"sv},  // host_sampling
      {"plait_generator_submit_ids", "\0\2\5\0\6\0\0\0\0\0\0"sv},
      {"plait_request_next", "\0\0\3\2\7\7\7\7"sv},
      {"plait_request_push", "\0\7"sv},
      {"plait_options_release", "\0"sv},
  });
  const std::string trains = program({
      {"plait_trainer_step", "\0\0\310\0"sv},
      {"plait_trainer_forward", "\0\0\0\1"sv},
      {"plait_trainer_backward", "\0\0\1"sv},
      {"plait_trainer_update", "\0\0"sv},
      {"plait_trainer_evaluate_ids", "\0\0\310\0"sv},
  });
  const std::string opens = program({
      {"plait_model_open", "\0\0\0\1"sv},
      {"plait_session_create", "\1\310\0\1"sv},
      {"plait_session_run", "\0\1\0\0\1\1\0\2"sv},
      {"plait_model_release", "\0"sv},
      {"plait_tensor_view", "\2\0"sv},
  });
  const std::string reads = program({
      {"plait_tokenizer_encode", "\0\5hello\0\1\0\1"sv},
      {"plait_tensor_view", "\1\0"sv},
      {"plait_tokenizer_chat", "\0\0\0\0\0\2"sv},
      {"plait_tensor_view", "\2\0"sv},
      {"plait_tokenizer_release", "\0"sv},
      {"plait_tokenizer_piece", "\0\5\0\3"sv},
  });
  std::vector<std::string> out = {generates, continues, samples_itself, trains, opens, reads, adapts};
  // The same by two threads, each with its half.
  for (size_t i = 0, n = out.size(); i < n; ++i) out.push_back('\1' + out[i].substr(1) + out[(i + 1) % n].substr(1));
  return out;
}

}  // namespace plait::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait::fuzz;
  if (size == 0) return 0;
  Pool pool;
  Beginning::put_into(pool);
  const size_t half = size / 2;
  if (data[0] % 2 == 0) {
    run(pool, data + 1, size - 1, true);
  } else {
    std::thread other([&] { run(pool, data + 1, half, false); });
    run(pool, data + 1 + half, size - 1 - half, false);
    other.join();
  }
  for (auto [kind, handle] : pool.made) release(kind, handle);
  ++accepted;
  return 0;
}

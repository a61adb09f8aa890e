// Plait for C++17: plait.h with RAII handles and exceptions. See plait.h for documentation; this header
// needs no library of its own.
#ifndef PLAIT_HPP
#define PLAIT_HPP

#include <cstring>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait.h"

namespace plait_api {

/// A status other than PLAIT_OK. `what` is plait_last_error().
class Failure : public std::runtime_error {
 public:
  Failure(plait_status status, const char* message, const char* hint)
      : std::runtime_error(message), status_(status), hint_(hint) {}
  plait_status status() const { return status_; }
  const std::string& hint() const { return hint_; }

 private:
  plait_status status_;
  std::string hint_;
};

/// Throws Failure unless the status is PLAIT_OK.
inline void check(plait_status status) {
  if (status != PLAIT_OK) throw Failure(status, plait_last_error(), plait_last_hint());
}

/// Owns one handle. Moves; does not copy.
template <class Type, plait_status (*release)(Type*)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(Type* handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() { release(handle_); }

  Type* get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 protected:
  Type* handle_ = nullptr;
};

/// Returns the last parameter of `call`.
template <class Type, class Call>
Type* made(Call&& call) {
  Type* out = nullptr;
  check(call(&out));
  return out;
}

class Tensor : public Handle<plait_tensor, plait_tensor_release> {
 public:
  using Handle::Handle;
  /// A copy of `data`; zeros for NULL.
  static Tensor copy(plait_dtype dtype, const std::vector<int64_t>& dims, const void* data, int64_t bytes) {
    return Tensor(made<plait_tensor>([&](plait_tensor** out) {
      return plait_tensor_copy(dtype, dims.data(), static_cast<int64_t>(dims.size()), data, bytes, out);
    }));
  }
  /// Strings, in UTF-8.
  static Tensor of_strings(const std::vector<std::string>& values, const std::vector<int64_t>& dims) {
    std::vector<char> memory(values.size() * sizeof(uint64_t));
    for (size_t i = 0; i < values.size(); ++i) {
      memory.insert(memory.end(), values[i].begin(), values[i].end());
      const uint64_t end = memory.size() - values.size() * sizeof(uint64_t);
      std::memcpy(memory.data() + i * sizeof end, &end, sizeof end);
    }
    return copy(PLAIT_STRING, dims, memory.data(), static_cast<int64_t>(memory.size()));
  }
  /// A sequence, or an optional, of tensors of one dtype, as an input of a session.
  static Tensor list(plait_dtype dtype, const std::vector<Tensor>& parts) {
    std::vector<plait_tensor*> handles;
    for (const Tensor& part : parts) handles.push_back(part.get());
    return Tensor(made<plait_tensor>([&](plait_tensor** out) {
      return plait_tensor_list(dtype, handles.data(), static_cast<int64_t>(handles.size()), out);
    }));
  }
  /// The tensors of a list.
  std::vector<Tensor> parts() const {
    int64_t count = 0;
    check(plait_tensor_parts(handle_, &count));
    std::vector<Tensor> out;
    for (int64_t i = 0; i < count; ++i)
      out.push_back(Tensor(made<plait_tensor>([&](plait_tensor** part) { return plait_tensor_part(handle_, i, part); })));
    return out;
  }
  /// From and to NumPy's .npy files.
  static Tensor read(const std::string& path, plait_dtype expected = PLAIT_NONE) {
    return Tensor(made<plait_tensor>([&](plait_tensor** out) { return plait_tensor_read(path.c_str(), expected, out); }));
  }
  void write(const std::string& path) const { check(plait_tensor_write(handle_, path.c_str())); }
  plait_view view() const {
    plait_view out{};
    out.struct_size = sizeof out;
    check(plait_tensor_view(handle_, &out));
    return out;
  }
  /// The bytes of a text.
  std::string text() const {
    plait_view seen = view();
    return std::string(static_cast<const char*>(seen.data), static_cast<size_t>(seen.bytes));
  }
  /// The texts of strings.
  std::vector<std::string> strings() const {
    const plait_view seen = view();
    const auto* memory = static_cast<const char*>(seen.data);
    std::vector<std::string> out;
    uint64_t begin = 0;
    for (int64_t i = 0; i < seen.elements; ++i) {
      uint64_t end = 0;
      std::memcpy(&end, memory + i * static_cast<int64_t>(sizeof end), sizeof end);
      out.emplace_back(memory + seen.elements * static_cast<int64_t>(sizeof end) + begin, static_cast<size_t>(end - begin));
      begin = end;
    }
    return out;
  }
  template <class T>
  std::vector<T> values() const {
    plait_view seen = view();
    auto* first = static_cast<const T*>(seen.data);
    return std::vector<T>(first, first + static_cast<size_t>(seen.bytes) / sizeof(T));
  }
};

/// Returns the tensor in the last parameter of `call`.
template <class Call>
Tensor tensor(Call&& call) {
  return Tensor(made<plait_tensor>(std::forward<Call>(call)));
}

class Options : public Handle<plait_options, plait_options_release> {
 public:
  Options() : Handle(made<plait_options>(plait_options_create)) {}
  Options& set(const std::string& key, std::string_view value) {
    check(plait_options_set(handle_, key.c_str(), value.data(), static_cast<int64_t>(value.size())));
    return *this;
  }
  Options& set(const std::string& key, const Tensor& value) {
    check(plait_options_set_tensor(handle_, key.c_str(), value.get()));
    return *this;
  }
  Options& set(const std::string& key, int64_t value) { return set(key, std::string_view(std::to_string(value))); }
};

class Model : public Handle<plait_model, plait_model_release> {
 public:
  using Handle::Handle;
  explicit Model(const std::string& path, const Options& options = {})
      : Handle(made<plait_model>(
            [&](plait_model** out) { return plait_model_open(path.c_str(), options.get(), out); })) {}
  /// From memory: files by their names in a directory; tensors of bytes are kept, not copied.
  static Model of_files(const std::vector<std::pair<std::string, const Tensor*>>& files,
                        const Options& options = {}) {
    std::vector<const char*> names;
    std::vector<plait_tensor*> contents;
    for (const auto& [name, content] : files) {
      names.push_back(name.c_str());
      contents.push_back(content->get());
    }
    return Model(made<plait_model>([&](plait_model** out) {
      return plait_model_open_memory(names.data(), contents.data(), static_cast<int64_t>(names.size()), options.get(),
                                     out);
    }));
  }
  /// For the option "background". False on timeout.
  bool wait(int64_t timeout_ms = -1) const {
    plait_status status = plait_model_wait(handle_, timeout_ms);
    if (status != PLAIT_TIMEOUT) check(status);
    return status == PLAIT_OK;
  }
  double progress() const {
    double out = 0;
    check(plait_model_progress(handle_, &out));
    return out;
  }
  void cancel() const { check(plait_model_cancel(handle_)); }
  std::string info() const {
    return tensor([&](plait_tensor** out) { return plait_model_info(handle_, out); }).text();
  }
  std::string dump(const std::string& pass) const {
    return tensor([&](plait_tensor** out) { return plait_model_dump(handle_, pass.c_str(), out); }).text();
  }
  /// The plan of a generator on a mesh, as JSON.
  std::string plan(const Options& options) const {
    return tensor([&](plait_tensor** out) { return plait_model_plan(handle_, options.get(), out); }).text();
  }
  /// The fastest plan of a training run, or of generation, on a machine.
  std::string best_plan(const Options& options) const {
    return tensor([&](plait_tensor** out) { return plait_model_best_plan(handle_, options.get(), out); }).text();
  }
  /// The plan of a trainer; `options` are a trainer's.
  std::string plan_training(const Options& options) const {
    return tensor([&](plait_tensor** out) { return plait_model_plan_training(handle_, options.get(), out); }).text();
  }
  /// Writes the model as ONNX into `directory`, with its tokenizer and configurations.
  void write(const std::string& directory, const Options& options = {}) const {
    check(plait_model_export(handle_, directory.c_str(), options.get()));
  }
};

class Tokenizer : public Handle<plait_tokenizer, plait_tokenizer_release> {
 public:
  using Handle::Handle;
  explicit Tokenizer(const Model& model)
      : Handle(made<plait_tokenizer>(
            [&](plait_tokenizer** out) { return plait_tokenizer_of_model(model.get(), out); })) {}
  std::vector<int32_t> encode(std::string_view text, bool add_special = true) const {
    return tensor([&](plait_tensor** out) {
             return plait_tokenizer_encode(handle_, text.data(), static_cast<int64_t>(text.size()), add_special, out);
           })
        .values<int32_t>();
  }
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = true) const {
    return tensor([&](plait_tensor** out) {
             return plait_tokenizer_decode(handle_, ids.data(), static_cast<int64_t>(ids.size()), skip_special, out);
           })
        .text();
  }
  /// What a token adds within a text, which need not be whole characters.
  std::string bytes(int32_t token) const {
    const auto all =
        tensor([&](plait_tensor** out) { return plait_tokenizer_bytes(handle_, token, out); }).values<uint8_t>();
    return {all.begin(), all.end()};
  }
  void cancel() const { check(plait_tokenizer_cancel(handle_)); }
};

/// The pointers of an event are valid until this thread's next `next` of any request.
class Mailbox : public Handle<plait_mailbox, plait_mailbox_release> {
 public:
  Mailbox() : Handle(made<plait_mailbox>([](plait_mailbox** out) { return plait_mailbox_create(out); })) {}
  /// The next tag; nullopt on timeout.
  std::optional<int64_t> next(int64_t timeout_ms = -1) const {
    int64_t tag = 0;
    const plait_status status = plait_mailbox_next(handle_, timeout_ms, &tag);
    if (status == PLAIT_TIMEOUT) return std::nullopt;
    check(status);
    return tag;
  }
  void post(int64_t tag) const { check(plait_mailbox_post(handle_, tag)); }
};

class Request : public Handle<plait_request, plait_request_release> {
 public:
  using Handle::Handle;
  /// False on timeout; an event of kind PLAIT_EVENT_END is the last one.
  bool next(plait_event& event, int64_t timeout_ms = -1) const {
    event.struct_size = sizeof event;
    plait_status status = plait_request_next(handle_, timeout_ms, &event);
    if (status != PLAIT_TIMEOUT) check(status);
    return status == PLAIT_OK;
  }
  /// Sample 0's text; waits for the end.
  std::string text() const {
    std::string out;
    plait_event event{};
    while (next(event) && event.kind != PLAIT_EVENT_END) {
      if (event.sample == 0) out.append(event.text, static_cast<size_t>(event.text_length));
    }
    return out;
  }
  void attach(const Mailbox& mailbox, int64_t tag) const { check(plait_request_attach(handle_, mailbox.get(), tag)); }
  void push(int32_t token) const { check(plait_request_push(handle_, token)); }
  void cancel() const { check(plait_request_cancel(handle_)); }
  plait_usage usage() const {
    plait_usage out{};
    out.struct_size = sizeof out;
    check(plait_request_usage(handle_, &out));
    return out;
  }
  Tensor result() const {
    return tensor([&](plait_tensor** out) { return plait_request_result(handle_, out); });
  }
  Tensor save() const {
    return tensor([&](plait_tensor** out) { return plait_request_save(handle_, out); });
  }
};

/// In the form of the C interface.
struct NamedTensors {
  explicit NamedTensors(const std::vector<std::pair<std::string, const Tensor*>>& all) {
    for (const auto& [name, value] : all) {
      names.push_back(name.c_str());
      tensors.push_back(value->get());
    }
  }
  int64_t count() const { return static_cast<int64_t>(tensors.size()); }
  std::vector<const char*> names;
  std::vector<plait_tensor*> tensors;
};

class World : public Handle<plait_world, plait_world_release> {
 public:
  World() = default;
  explicit World(const Options& options)
      : Handle(made<plait_world>([&](plait_world** out) { return plait_world_open(options.get(), out); })) {}
  int32_t rank() const { return numbers().first; }
  int32_t size() const { return numbers().second; }
  void serve() const { check(plait_world_serve(handle_)); }
  void close() const { check(plait_world_close(handle_)); }

 private:
  std::pair<int32_t, int32_t> numbers() const {
    int32_t rank = 0, size = 0;
    check(plait_world_rank(handle_, &rank, &size));
    return {rank, size};
  }
};

class Generator : public Handle<plait_generator, plait_generator_release> {
 public:
  using Handle::Handle;
  explicit Generator(const Model& model, const Options& options = {})
      : Handle(made<plait_generator>(
            [&](plait_generator** out) { return plait_generator_create(model.get(), options.get(), out); })) {}
  Generator(const World& world, const Model& model, const Options& options)
      : Handle(made<plait_generator>([&](plait_generator** out) {
          return plait_generator_create_on(world.get(), model.get(), options.get(), out);
        })) {}
  /// False on timeout.
  bool wait(int64_t timeout_ms = -1) const {
    plait_status status = plait_generator_wait(handle_, timeout_ms);
    if (status != PLAIT_TIMEOUT) check(status);
    return status == PLAIT_OK;
  }
  double progress() const {
    double out = 0;
    check(plait_generator_progress(handle_, &out));
    return out;
  }
  void cancel() const { check(plait_generator_cancel(handle_)); }
  Request submit(std::string_view text, const Options& options = {}, const Request& parent = {}) const {
    return Request(made<plait_request>([&](plait_request** out) {
      return plait_generator_submit_text(handle_, text.data(), static_cast<int64_t>(text.size()), options.get(),
                                         parent.get(), out);
    }));
  }
  Request submit(const std::vector<int32_t>& ids, const Options& options = {}, const Request& parent = {}) const {
    return Request(made<plait_request>([&](plait_request** out) {
      return plait_generator_submit_ids(handle_, ids.data(), static_cast<int64_t>(ids.size()), options.get(),
                                        parent.get(), out);
    }));
  }
  Request submit_chat(std::string_view messages, const Options& options = {}) const {
    return Request(made<plait_request>([&](plait_request** out) {
      return plait_generator_submit_chat(handle_, messages.data(), static_cast<int64_t>(messages.size()),
                                         options.get(), out);
    }));
  }
  Request restore(const Tensor& bytes) const {
    plait_view view = bytes.view();
    return Request(made<plait_request>(
        [&](plait_request** out) { return plait_generator_restore(handle_, view.data, view.bytes, out); }));
  }
  void add_adapter(const std::string& name, const std::string& directory) const {
    check(plait_generator_add_adapter(handle_, name.c_str(), directory.c_str()));
  }
  void remove_adapter(const std::string& name) const { check(plait_generator_remove_adapter(handle_, name.c_str())); }
  std::string adapters() const {
    return tensor([&](plait_tensor** out) { return plait_generator_adapters(handle_, out); }).text();
  }
  plait_generator_stats statistics() const {
    plait_generator_stats out{};
    out.struct_size = sizeof out;
    check(plait_generator_statistics(handle_, &out));
    return out;
  }
  std::string profile() const {
    return tensor([&](plait_tensor** out) { return plait_generator_profile(handle_, out); }).text();
  }
  std::string histograms() const {
    return tensor([&](plait_tensor** out) { return plait_generator_histograms(handle_, out); }).text();
  }
  std::string ranks() const {
    return tensor([&](plait_tensor** out) { return plait_generator_ranks(handle_, out); }).text();
  }
  std::string trace() const {
    return tensor([&](plait_tensor** out) { return plait_generator_trace(handle_, out); }).text();
  }
};

class Trainer : public Handle<plait_trainer, plait_trainer_release> {
 public:
  using Handle::Handle;
  Trainer(const Model& model, const Options& options)
      : Handle(made<plait_trainer>(
            [&](plait_trainer** out) { return plait_trainer_create(model.get(), options.get(), out); })) {}
  Trainer(const World& world, const Model& model, const Options& options)
      : Handle(made<plait_trainer>([&](plait_trainer** out) {
          return plait_trainer_create_on(world.get(), model.get(), options.get(), out);
        })) {}
  /// False on timeout.
  bool wait(int64_t timeout_ms = -1) const {
    plait_status status = plait_trainer_wait(handle_, timeout_ms);
    if (status != PLAIT_TIMEOUT) check(status);
    return status == PLAIT_OK;
  }
  double progress() const {
    double out = 0;
    check(plait_trainer_progress(handle_, &out));
    return out;
  }
  void cancel() const { check(plait_trainer_cancel(handle_)); }
  /// False on timeout; a report with an ending is the last one.
  bool next(plait_step& step, int64_t timeout_ms = -1) const {
    step.struct_size = sizeof step;
    plait_status status = plait_trainer_next(handle_, timeout_ms, &step);
    if (status != PLAIT_TIMEOUT) check(status);
    return status == PLAIT_OK;
  }
  /// Without labels they are the next ids.
  plait_step step(const Tensor& ids, const Tensor& labels = {}) const {
    plait_step out{};
    out.struct_size = sizeof out;
    check(plait_trainer_step(handle_, ids.get(), labels.get(), &out));
    return out;
  }
  /// For a model with its own loss.
  plait_step step(const std::vector<std::pair<std::string, const Tensor*>>& inputs) const {
    plait_step out{};
    out.struct_size = sizeof out;
    const NamedTensors given(inputs);
    check(plait_trainer_step_inputs(handle_, given.names.data(), given.tensors.data(), given.count(), &out));
    return out;
  }
  plait_evaluation evaluate(const std::vector<std::pair<std::string, const Tensor*>>& inputs) const {
    plait_evaluation out{};
    out.struct_size = sizeof out;
    const NamedTensors given(inputs);
    check(plait_trainer_evaluate_inputs(handle_, given.names.data(), given.tensors.data(), given.count(), &out));
    return out;
  }
  /// f32 [documents, s, v]
  Tensor forward(const Tensor& ids) const {
    return tensor([&](plait_tensor** out) { return plait_trainer_forward(handle_, ids.get(), out); });
  }
  void backward(const Tensor& ids, const Tensor& gradient) const {
    check(plait_trainer_backward(handle_, ids.get(), gradient.get()));
  }
  plait_step update() const {
    plait_step out{};
    out.struct_size = sizeof out;
    check(plait_trainer_update(handle_, &out));
    return out;
  }
  plait_evaluation evaluate(const std::string& data) const {
    plait_evaluation out{};
    out.struct_size = sizeof out;
    check(plait_trainer_evaluate(handle_, data.c_str(), &out));
    return out;
  }
  plait_evaluation evaluate(const Tensor& ids, const Tensor& labels = {}) const {
    plait_evaluation out{};
    out.struct_size = sizeof out;
    check(plait_trainer_evaluate_ids(handle_, ids.get(), labels.get(), &out));
    return out;
  }
  void save() const { check(plait_trainer_save(handle_)); }
  /// Writes the trained model as ONNX.
  void write(const std::string& directory) const { check(plait_trainer_export(handle_, directory.c_str())); }
  void save_adapter(const std::string& directory) const {
    check(plait_trainer_save_adapter(handle_, directory.c_str()));
  }
};

class Session : public Handle<plait_session, plait_session_release> {
 public:
  using Handle::Handle;
  explicit Session(const Model& model, const Options& options = {})
      : Handle(made<plait_session>(
            [&](plait_session** out) { return plait_session_create(model.get(), options.get(), out); })) {}
  std::string trace() const {
    return tensor([&](plait_tensor** out) { return plait_session_trace(handle_, out); }).text();
  }
  /// Names are valid until the session is released.
  std::vector<plait_operand> inputs() const { return operands(true); }
  std::vector<plait_operand> outputs() const { return operands(false); }
  /// Ends the current run of another thread.
  void cancel() const { check(plait_session_cancel(handle_)); }
  /// Returns the outputs of these names.
  std::vector<Tensor> run(const std::vector<std::pair<std::string, const Tensor*>>& inputs,
                          const std::vector<std::string>& outputs) const {
    const NamedTensors given(inputs);
    std::vector<const char*> output_names;
    std::vector<plait_tensor*> results(outputs.size());
    for (const std::string& name : outputs) output_names.push_back(name.c_str());
    check(plait_session_run(handle_, given.names.data(), given.tensors.data(), given.count(), output_names.data(),
                            results.data(), static_cast<int64_t>(results.size())));
    std::vector<Tensor> out;
    for (plait_tensor* result : results) out.emplace_back(result);
    return out;
  }

 private:
  std::vector<plait_operand> operands(bool inputs) const {
    int64_t input_count = 0, output_count = 0;
    check(plait_session_count(handle_, &input_count, &output_count));
    std::vector<plait_operand> out(static_cast<size_t>(inputs ? input_count : output_count));
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].struct_size = sizeof out[i];
      check((inputs ? plait_session_input : plait_session_output)(handle_, static_cast<int64_t>(i), &out[i]));
    }
    return out;
  }
};

}  // namespace plait_api

#endif  // PLAIT_HPP

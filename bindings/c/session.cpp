// Sessions of the C API: any graph, tensors in, tensors out.
#include <algorithm>

#include "bindings/c/devices.h"
#include "bindings/c/objects.h"
#include "bindings/c/trace.h"
#include "core/base/packed_list.h"
#include "core/base/strings.h"

namespace plait::c_api {

SessionObject::SessionObject(std::shared_ptr<ModelObject> model, const Settings& settings)
    : model_(std::move(model)),
      budget_(std::make_shared<MemoryBudget>(settings.integer("memory_bytes"))),
      pool_(settings.integer("threads") > 0 ? static_cast<int>(settings.integer("threads")) : usable_processors()) {
  CompileOptions options = model_->compile_options();
  std::string dtype = settings.text("dtype");
  if (dtype != "file") options.dtype = dtype_from_name(dtype);
  choose_device(settings, options);
  plain_ = compile_plain(model_->opened().as_written(), options);
  store_ = std::make_unique<Store>(nullptr, options.own_device());
  store_->load(*plain_.program, {}, &pool_);
  executor_ = std::make_unique<Executor>(plain_.program, *store_, pool_, budget_);
  if (settings.boolean("trace")) executor_->set_trace(&trace_);
  if (const double seconds = settings.real("time_limit"); seconds > 0)
    limit_ = std::make_unique<TimeLimit>(seconds, budget_);
}

std::vector<TraceEvent> SessionObject::trace() {
  std::lock_guard lock(mutex_);
  return trace_;
}

std::vector<Tensor> SessionObject::run(std::span<const TensorView> inputs, std::span<const int> outputs) {
  std::lock_guard lock(mutex_);
  budget_->begin();
  if (limit_) limit_->begin();
  const auto too_long = [&] {
    return Error(Code::timeout, cat("the run took longer than ", limit_->seconds(), " s"),
                 "option time_limit raises the limit");
  };
  try {
    executor_->run(inputs);
  } catch (const Error& error) {
    if (limit_ && limit_->end() && error.code() == Code::cancelled) throw too_long();
    throw;
  }
  if (limit_ && limit_->end()) throw too_long();
  std::vector<Tensor> out;
  for (int index : outputs) out.push_back(executor_->copy_of_output(index));  // valid until the next run: copied while locked
  return out;
}

namespace {

struct Side {
  std::string_view noun;
  const std::vector<std::string>& names;
  const std::vector<BufferId>& buffers;
  const std::vector<int>& lists;
};
Side inputs_of(const Program& program) { return {"input", program.input_names, program.inputs, program.input_lists}; }
Side outputs_of(const Program& program) { return {"output", program.output_names, program.outputs, program.output_lists}; }

void describe_operand(const Program& program, const Side& side, int64_t index, plait_operand* out) {
  auto count = static_cast<int64_t>(side.names.size());
  if (index < 0 || index >= count) {
    throw Error(Code::invalid_argument, cat("there is no ", side.noun, " ", index, ": the session has ", count));
  }
  auto at = static_cast<size_t>(index);
  const Buffer& buffer = program.buffers[static_cast<size_t>(side.buffers[at])];
  plait_operand filled{};
  filled.name = side.names[at].c_str();
  filled.dtype = static_cast<plait_dtype>(buffer.dtype);
  filled.is_list = side.lists[at];
  filled.rank = buffer.sized && buffer.dims.size() <= 8 ? static_cast<int32_t>(buffer.dims.size()) : -1;
  for (int32_t axis = 0; axis < filled.rank; ++axis) {
    const Dim& dim = buffer.dims[static_cast<size_t>(axis)];
    filled.dims[axis] = dim.is_constant() ? dim.constant() : -1;
  }
  fill(out, filled);
}

int index_of(const Side& side, const char* name) {
  required(name, "name");
  auto found = std::find(side.names.begin(), side.names.end(), name);
  if (found != side.names.end()) return static_cast<int>(found - side.names.begin());
  throw Error(Code::not_found, cat("the model has no ", side.noun, " ", quote(name)),
              cat("its ", side.noun, "s are ", quote(join(side.names, ", "), 1000)));
}

/// The host's tensors in the program's order.
std::vector<std::shared_ptr<Tensor>> bind_inputs(const Program& program, std::span<const char* const> names,
                                                 std::span<plait_tensor* const> tensors) {
  Side side = inputs_of(program);
  std::vector<std::shared_ptr<Tensor>> bound(side.names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    auto at = static_cast<size_t>(index_of(side, names[i]));
    if (bound[at]) throw Error(Code::invalid_argument, cat("input ", quote(names[i]), " is passed twice"));
    bound[at] = object_of<Tensor>(tensors[i]);
    DType expected = program.buffers[static_cast<size_t>(side.buffers[at])].dtype;
    if (bound[at]->dtype() != expected) {
      throw Error(Code::invalid_argument, cat("input ", quote(names[i]), " is ", dtype_name(bound[at]->dtype()),
                                              ", expected ", dtype_name(expected)));
    }
    const std::optional<int64_t> numbers = numbers_of_list(bound[at]->view(), side.lists[at]);
    if (!numbers)
      throw Error(Code::invalid_argument,
                  cat("input ", quote(names[i]),
                      side.lists[at] > 1 ? " is an optional of a sequence, and the tensor is no list of at most one list"
                                         : " is a sequence or an optional, and the tensor is no list"),
                  "plait_tensor_list makes a list of tensors");
    if (expected != DType::string) continue;
    try {
      check_packed_strings(bound[at]->view(), host_bytes(*bound[at]), *numbers);
    } catch (const Error& error) {
      throw error.at(cat("input ", quote(names[i])));
    }
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!bound[i]) throw Error(Code::invalid_argument, cat("input ", quote(side.names[i]), " is missing"));
  }
  return bound;
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_session_create(plait_model* model, plait_options* options, plait_session** out) {
  return create(out, [&] {
    return std::make_shared<SessionObject>(object_of<ModelObject>(model), settings_of(options, for_session));
  });
}

plait_status plait_session_count(plait_session* session, int64_t* inputs, int64_t* outputs) {
  return guarded([&] {
    *required(inputs, "inputs") = 0;
    *required(outputs, "outputs") = 0;
    auto object = object_of<SessionObject>(session);
    *inputs = static_cast<int64_t>(object->program().inputs.size());
    *outputs = static_cast<int64_t>(object->program().outputs.size());
  });
}

plait_status plait_session_input(plait_session* session, int64_t index, plait_operand* out) {
  return guarded([&] {
    auto object = object_of<SessionObject>(session);
    describe_operand(object->program(), inputs_of(object->program()), index, out);
  });
}

plait_status plait_session_output(plait_session* session, int64_t index, plait_operand* out) {
  return guarded([&] {
    auto object = object_of<SessionObject>(session);
    describe_operand(object->program(), outputs_of(object->program()), index, out);
  });
}

plait_status plait_session_run(plait_session* session, const char* const* input_names, plait_tensor* const* inputs,
                               int64_t input_count, const char* const* output_names, plait_tensor** outputs,
                               int64_t output_count) {
  if (outputs) std::fill_n(outputs, std::max<int64_t>(output_count, 0), nullptr);
  return guarded([&] {
    auto object = object_of<SessionObject>(session);
    const Program& program = object->program();
    auto bound = bind_inputs(program, span_of(input_names, input_count, "input_names"),
                             span_of(inputs, input_count, "inputs"));
    std::vector<TensorView> views;
    for (const auto& tensor : bound) views.push_back(tensor->view());
    std::vector<int> wanted;
    for (const char* name : span_of(output_names, output_count, "output_names")) {
      wanted.push_back(index_of(outputs_of(program), name));
    }
    auto handles = span_of(outputs, output_count, "outputs");
    auto made = object->run(views, wanted);
    try {
      for (size_t i = 0; i < handles.size(); ++i) outputs[i] = handle_of(share(std::move(made[i])));
    } catch (...) {
      for (size_t i = 0; i < handles.size(); ++i) release<Tensor>(std::exchange(outputs[i], nullptr));
      throw;
    }
  });
}

plait_status plait_session_cancel(plait_session* session) {
  return guarded([&] { object_of<SessionObject>(session)->cancel(); });
}

plait_status plait_session_trace(plait_session* session, plait_tensor** json) {
  return create(json, [&] { return text_tensor(trace_text({object_of<SessionObject>(session)->trace()})); });
}

plait_status plait_session_release(plait_session* session) { return release<SessionObject>(session); }

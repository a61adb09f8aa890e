// Functions without an object: version, errors, options, the op table.
#include <nlohmann/json.hpp>

#include "bindings/c/objects.h"
#include "core/graph/gradient.h"
#include "core/ops/ops.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/launch/register.h"
#include "kernels/reference/reference.h"

namespace plait::c_api {

std::shared_ptr<const Registry> make_registry(const std::string& isa) {
  auto out = std::make_shared<Registry>();
  register_ops(out->ops);
  register_reference_kernels(out->kernels);
  const char* wanted = std::getenv("PLAIT_ISA");
  register_cpu_kernels(out->kernels, !isa.empty() || !wanted ? std::string_view(isa) : std::string_view(wanted));
  register_cuda_kernels(out->kernels);
  return out;
}

Settings settings_of(plait_options* options, unsigned scope) {
  if (!options) return {};
  auto object = object_of<OptionsObject>(options);
  std::lock_guard lock(object->mutex);
  // A generator's options are also defaults of its requests, and exports accept those of a generator.
  unsigned scopes = scope;
  if (scope == for_generator || scope == for_export) scopes |= for_generator | for_request;
  object->settings.check(scopes);
  return object->settings;
}

namespace {

using Json = nlohmann::ordered_json;

/// Gradient support of the op: null if unknown.
Json gradient_of(const OpSchema& op) {
  if (!op.gradient) return nullptr;
  return op.gradient == no_gradient ? "zero" : "yes";
}

Json op_row(const OpSchema& op, const KernelTable& kernels) {
  Json attributes = Json::array(), implementations = Json::array();
  for (const AttributeRow& row : op.attributes) {
    attributes.push_back({{"name", row.name}, {"kind", row.kind}, {"default", row.default_text}});
  }
  for (const auto& kernel : kernels.all()) {
    if (kernel->op == op.name) implementations.push_back({{"isa", kernel->isa}, {"dtypes", kernel->dtypes}});
  }
  return {{"op", op.name},
          {"since", op.since},
          {"inputs", op.inputs},
          {"outputs", op.outputs},
          {"attributes", attributes},
          {"oldest", op.oldest},
          {"types", op.types},
          {"written_as", op.written_as},
          {"dims", op.dims},
          {"gradient", gradient_of(op)},
          {"doc", op.doc},
          {"kernels", implementations}};
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

const char* plait_version(void) { return PLAIT_VERSION; }

const char* plait_status_name(plait_status status) {
  bool known = status >= PLAIT_OK && status <= PLAIT_INTERNAL;
  return known ? code_name(static_cast<Code>(status)).data() : "unknown";
}

plait_status plait_fail(plait_status status, const char* message, const char* hint) {
  return fail(status, message, hint);
}
const char* plait_last_error(void) { return last_error(); }
const char* plait_last_hint(void) { return last_hint(); }

plait_status plait_options_create(plait_options** out) {
  return create(out, [] { return std::make_shared<OptionsObject>(); });
}

plait_status plait_options_set(plait_options* options, const char* key, const char* value, int64_t length) {
  return guarded([&] {
    auto object = object_of<OptionsObject>(options);
    std::string_view text = text_of(value, length, "value");
    std::lock_guard lock(object->mutex);
    object->settings.set(required(key, "key"), text);
  });
}

plait_status plait_options_set_tensor(plait_options* options, const char* key, plait_tensor* tensor) {
  return guarded([&] {
    auto object = object_of<OptionsObject>(options);
    const auto given = object_of<Tensor>(tensor);
    Tensor copy(given->dtype(), given->shape(), copy_blob({given->data(), static_cast<size_t>(given->bytes())}));
    std::lock_guard lock(object->mutex);
    object->settings.set(required(key, "key"), std::move(copy));
  });
}

plait_status plait_options_describe(plait_tensor** json) {
  return create(json, [] { return text_tensor(describe_options()); });
}

plait_status plait_options_values(plait_options* options, const char* kind, plait_tensor** json) {
  return create(json, [&] {
    const std::string_view name = required(kind, "kind");
    return text_tensor(option_values(settings_of(options, scope_of(name)), name));
  });
}

plait_status plait_options_release(plait_options* options) { return release<OptionsObject>(options); }

plait_status plait_ops(plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    auto registry = make_registry(settings_of(options, for_model).text("isa"));
    Json rows = Json::array();
    for (const auto& [name, op] : registry->ops.all()) rows.push_back(op_row(op, registry->kernels));
    return text_tensor(rows.dump(1));
  });
}

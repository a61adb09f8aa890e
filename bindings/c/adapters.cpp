// Adapters of generators of the C API: at creation, and added or removed later.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bindings/c/objects.h"

namespace plait::c_api {

std::vector<NamedAdapter> given_adapters(const Settings& settings) {
  std::vector<NamedAdapter> out;
  auto has = [&](const std::string& name) {
    return std::any_of(out.begin(), out.end(), [&](const NamedAdapter& one) { return one.name == name; });
  };
  for (const std::string& text : settings.texts("adapters")) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw Error(Code::invalid_argument, cat("adapters is ", quote(text), ", expected NAME=DIRECTORY"));
    const std::string name = text.substr(0, equals);
    if (has(name)) throw Error(Code::invalid_argument, cat("two adapters are called ", quote(name)));
    out.push_back({name, read_adapter(text.substr(equals + 1))});
  }
  if (const std::string own = settings.text("adapter"); !own.empty() && !has(own))
    out.push_back({own, read_adapter(own)});
  return out;
}

CompileOptions adapted_compile_options(ModelObject& model, const Settings& settings,
                                       std::span<const NamedAdapter> given) {
  constexpr int64_t usual_rank = 16;
  CompileOptions out = generator_compile_options(model, settings);
  out.stages = generator_stages(settings, out.mesh);
  AdapterCapacity& capacity = out.adapters;
  // Prefixes use the cache, not slots.
  const auto count = std::count_if(given.begin(), given.end(),
                                   [](const NamedAdapter& one) { return one.weights.prefix_tokens() == 0; });
  capacity.slots = std::max(count, settings.integer("adapter_slots"));
  capacity.targets = settings.texts("adapter_targets");
  // adapter_slots without targets: reserve the default targets.
  capacity.all = capacity.targets.empty() && capacity.slots > count;
  capacity.rank = settings.integer("adapter_rank");
  if (capacity.rank == 0 && count == 0) capacity.rank = usual_rank;
  for (const auto& [name, weights] : given) {
    if (!settings.integer("adapter_rank")) capacity.rank = std::max(capacity.rank, weights.rank);
    for (const auto& [module, pair] : weights.modules) capacity.modules.push_back(module);
  }
  return out;
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_generator_add_adapter(plait_generator* generator, const char* name, const char* directory) {
  return guarded([&] {
    auto object = object_of<GeneratorObject>(generator);
    const std::string called = required(name, "name"), path = required(directory, "directory");
    object->scheduler().add_adapter(called, read_adapter(path));
  });
}

plait_status plait_generator_remove_adapter(plait_generator* generator, const char* name) {
  return guarded([&] {
    auto object = object_of<GeneratorObject>(generator);
    object->scheduler().remove_adapter(required(name, "name"));
  });
}

plait_status plait_generator_adapters(plait_generator* generator, plait_tensor** json) {
  return create(json, [&] {
    const nlohmann::json names = object_of<GeneratorObject>(generator)->scheduler().adapters();
    return text_tensor(names.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  });
}

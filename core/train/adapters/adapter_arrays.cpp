#include "core/train/adapters/adapter_arrays.h"

#include <cstring>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/adapt/sites.h"
#include "core/passes/adapt/module_names.h"

namespace plait {
namespace {

constexpr const char* wrong_adapter = "the adapter is of another model, or of other targets";

/// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight".
std::string module_of(const std::string& name) { return name.substr(0, name.rfind(".lora_")); }

/// The adapter's module; one per expert if it has experts.
std::vector<std::string> modules_of(const AdapterParameters& adapter) {
  std::vector<std::string> out;
  for (int64_t expert = 0; expert < adapter.experts(); ++expert)
    out.push_back(module_of_expert(adapter.module, expert));
  if (out.empty()) out.push_back(adapter.module);
  return out;
}

/// Matrix `index` of a stack.
Tensor taken(const Tensor& stack, int64_t index) {
  const Shape& whole = stack.shape();
  const int64_t size = whole[1] * whole[2];
  return Tensor::of<float>(DType::f32, {whole[1], whole[2]},
                           {stack.as<float>() + index * size, static_cast<size_t>(size)});
}

/// Copies the module's half into `to`; checks its shape.
void put(const AdapterWeights& file, const AdapterParameters& adapter, const std::string& module, bool is_a,
         std::byte* to) {
  const TrainedParameter& parameter = is_a ? *adapter.a : *adapter.b;
  const auto found = file.modules.find(module);
  if (found == file.modules.end() || found->second.of_table != adapter.of_table)
    throw Error(Code::invalid_argument,
                cat("the adapter has no ", quote(cat(module, parameter.name.substr(adapter.module.size())))),
                wrong_adapter);
  const Tensor& there = is_a ? found->second.a : found->second.b;
  const Shape& shape = parameter.shape;
  const Shape expected{shape[shape.rank() - 2], shape[shape.rank() - 1]};
  if (there.shape() != expected)
    throw Error(Code::invalid_argument,
                cat("the adapter's ", quote(cat(module, parameter.name.substr(adapter.module.size()))), " is ",
                    there.shape().text(), ", the model's is ", expected.text()),
                wrong_adapter);
  std::memcpy(to, there.data(), static_cast<size_t>(there.bytes()));
}

}  // namespace

std::vector<AdapterParameters> adapters_among(const std::vector<TrainedParameter>& parameters) {
  std::map<std::string, AdapterParameters> found;
  for (const TrainedParameter& one : parameters) {
    AdapterParameters& adapter = found[module_of(one.name)];
    const bool is_a = one.name.ends_with(lora_a) || one.name.ends_with(table_a);
    adapter.module = module_of(one.name);
    adapter.of_table = one.name.ends_with(table_a) || one.name.ends_with(table_b);
    (is_a ? adapter.a : adapter.b) = &one;
  }
  std::vector<AdapterParameters> out;
  for (const auto& [module, adapter] : found) out.push_back(adapter);
  return out;
}

void give_pairs(const AdapterParameters& adapter, const Tensor& a, const Tensor& b, AdapterWeights& out) {
  const std::vector<std::string> modules = modules_of(adapter);
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    out.modules[modules[i]] = adapter.experts()
                                  ? AdapterWeights::Pair{taken(a, index), taken(b, index)}
                                  : AdapterWeights::Pair{a, b, adapter.of_table, adapter.b->begin, adapter.b->rows};
  }
}

std::map<std::string, Tensor> arrays_of(const std::vector<TrainedParameter>& parameters,
                                        const AdapterWeights& given) {
  const std::vector<AdapterParameters> adapters = adapters_among(parameters);
  std::vector<AdaptedLinear> products;
  for (const AdapterParameters& one : adapters)
    for (const std::string& module : modules_of(one)) products.push_back({module, one.k(), one.n()});
  const AdapterWeights file = as_products(given, products);
  if (file.rank != given.rank)
    throw Error(Code::unsupported,
                cat("the adapter's queries, keys and values are one product of the model, whose rank would be ",
                    file.rank, ", others have ", given.rank),
                "generators take it, with that adapter_rank");
  std::map<std::string, Tensor> out;
  std::set<std::string> known;
  for (const AdapterParameters& adapter : adapters) {
    const std::vector<std::string> modules = modules_of(adapter);
    for (const bool is_a : {true, false}) {
      const TrainedParameter& parameter = is_a ? *adapter.a : *adapter.b;
      Tensor whole(DType::f32, parameter.shape);
      const size_t size = static_cast<size_t>(whole.bytes()) / modules.size();
      for (size_t i = 0; i < modules.size(); ++i) put(file, adapter, modules[i], is_a, whole.data() + i * size);
      out[parameter.key] = std::move(whole);
    }
    known.insert(modules.begin(), modules.end());
  }
  for (const auto& [module, pair] : file.modules)
    if (!known.contains(module))
      throw Error(Code::invalid_argument, cat("the adapter's ", quote(module), " fits no weight of the model"),
                  wrong_adapter);
  return out;
}

}  // namespace plait

#pragma once
// Module names in adapters: PEFT's names of the Hugging Face model's modules, derived from the file's names.
// Projections that share a packed weight are parts of a module.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/passes/base/adapters.h"

namespace plait {

/// "model.layers.0.self_attn.q_proj" for the weight "model.layers.0.self_attn.q_proj.weight", the node
/// "/model/layers.0/self_attn/q_proj/MatMul_Q4" (scopes of TorchScript), and
/// "model.layers.0.attn.q_proj.MatMul.weight" and its node (the builder of onnxruntime-genai, which uses attn for all
/// models; its "model.layers.0.attn.qkv_proj" is not a module of most models, and is unchanged). Idempotent; other
/// names are unchanged.
std::string module_of_name(std::string_view name);

/// One of the projections that read a weight of the file.
struct PackedProduct {
  int64_t begin = 0, size = 0;  ///< its rows of the weight [n, k]
};
/// Names of the projections of the weight `name`, in row order. For the builder's packed queries, keys and values
/// three modules, "...self_attn.q_proj" and so on; otherwise "module", "module.part1", ... of one module, or
/// "module.copy1", ... if they do not partition its rows.
std::vector<std::string> names_of_products(std::string_view name, std::span<const PackedProduct> products);

/// The adapter by projection: packed modules are split. Accepts PEFT files, the output of `as_modules`, and names of
/// nodes and weights; other names are unchanged. Throws Error(unsupported) if a projection would need another rank
/// than the others. Queries, keys and values that the builder packed are joined, which may need more ranks: then all
/// get as many.
AdapterWeights as_products(const AdapterWeights& adapter, std::span<const AdaptedLinear> products);
/// Whether these names of `names_of_products` are parts of one module.
bool are_of_one_module(const std::vector<std::string>& names);
/// Whether a module of an adapter file is this projection.
bool means(std::string_view module, std::string_view product);

/// The adapter by PEFT's modules: a packed weight's has the concatenated ranks of its parts, each with its own rows
/// of a and columns of b; b is zero elsewhere. Queries, keys and values that the builder packed become three modules
/// with the same a and their rows of b, as most models have them.
AdapterWeights as_modules(const AdapterWeights& adapter, const Decoder& decoder);

}  // namespace plait

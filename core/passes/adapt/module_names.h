#pragma once
// What adapters call the products of a model: as PEFT calls the modules of the Hugging Face model that a file was made of, as far
// as the file's names tell. Products of one packed weight are parts of a module there.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/passes/base/adapters.h"

namespace plait {

/// "model.layers.0.self_attn.q_proj" of the weight "model.layers.0.self_attn.q_proj.weight", of the node
/// "/model/layers.0/self_attn/q_proj/MatMul_Q4" (scopes of TorchScript), of "model.layers.0.attn.q_proj.MatMul.weight" and its node
/// (the builder of onnxruntime-genai, which says attn for all models; its "model.layers.0.attn.qkv_proj" is no module of most, and
/// stays). What tells no module stays as it is, and so does what this made.
std::string module_of_name(std::string_view name);

/// One of the products that read a weight of the file.
struct PackedProduct {
  int64_t begin = 0, size = 0;  ///< its rows of the weight [n, k]
};
/// The names of products of one weight that is called `name` in the file, in the order of their rows. Where the builder packed
/// queries, keys and values, which are three modules: "...self_attn.q_proj" and so on; else "module", "module.part1", ... where
/// they are one module; "module.copy1", ... where they do not make up its rows one behind the other.
std::vector<std::string> names_of_products(std::string_view name, std::span<const PackedProduct> products);

/// The adapter as these products take it: modules by their names, those of packed weights taken apart. Files of PEFT, what
/// `as_modules` made, and the names of nodes and weights themselves are understood; what fits nothing keeps its name. Throws
/// Error(unsupported) where a product would have an adapter of another rank than the others. Where queries, keys and values are one
/// product of the builder's they are put together, which may take more ranks: then all have as many.
AdapterWeights as_products(const AdapterWeights& adapter, std::span<const AdaptedLinear> products);
/// Whether names that names_of_products gave are of parts that make up one module.
bool are_of_one_module(const std::vector<std::string>& names);
/// Whether a module of an adapter's file means this product.
bool means(std::string_view module, std::string_view product);

/// The adapter by modules that PEFT knows: that of a packed weight has the parts' ranks one behind the other, so that each
/// part has its own rows of a and columns of b; b is zeros elsewhere. Queries, keys and values that the builder packed into one
/// product have its a and their rows of its b, since most models have them apart.
AdapterWeights as_modules(const AdapterWeights& adapter, const Decoder& decoder);

}  // namespace plait

#include "core/passes/module_names.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr std::string_view part_mark = ".part";
/// What the builder packs into one product, and what it calls it.
constexpr std::string_view packed_attention = ".self_attn.qkv_proj";
constexpr std::string_view attention_parts[] = {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"};

/// "MatMul", "Gemm_3", "MatMul_Q4", "MatMulNBits": what a node is called within its module.
bool is_product(std::string_view name) {
  for (std::string_view op : {"MatMulNBits", "MatMul", "Gemm"})
    if (name.starts_with(op)) return name.size() == op.size() || name[op.size()] == '_';
  return false;
}

bool is_number(std::string_view text) {
  int64_t ignored;
  return parse_int(text, ignored);
}

/// Module and part of "module.part2"; part 0 of others.
std::pair<std::string, int64_t> split_part(std::string_view name) {
  const size_t at = name.rfind(part_mark);
  int64_t part = 0;
  if (at == std::string_view::npos || !parse_int(name.substr(at + part_mark.size()), part))
    return {std::string(name), 0};
  return {std::string(name.substr(0, at)), part};
}

/// The same, where the builder's parts have names of their own.
std::pair<std::string, int64_t> packed_of(std::string_view product) {
  for (int64_t part = 0; part < std::ssize(attention_parts); ++part)
    if (const std::string_view end = attention_parts[part]; product.ends_with(end))
      return {cat(product.substr(0, product.size() - end.size()), packed_attention), part};
  return split_part(product);
}

std::string module_of_part(std::string_view name) {
  const auto [base, part] = split_part(name);
  const std::string module = module_of_name(base);
  return part ? cat(module, part_mark, part) : module;
}

/// Rows [begin, begin + count) of a matrix.
Tensor rows_of(const Tensor& matrix, int64_t begin, int64_t count) {
  const int64_t width = matrix.shape()[1];
  return Tensor::of<float>(DType::f32, {count, width},
                           {matrix.as<float>() + begin * width, static_cast<size_t>(count * width)});
}

/// Columns likewise.
Tensor columns_of(const Tensor& matrix, int64_t begin, int64_t count) {
  const int64_t rows = matrix.shape()[0], width = matrix.shape()[1];
  Tensor out(DType::f32, {rows, count});
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(out.as<float>() + row * count, matrix.as<float>() + row * width + begin,
                static_cast<size_t>(4 * count));
  return out;
}

/// The adapter of one part of `parts`, whose rows of b these are: the part's own ranks, where others are zeros in them.
AdapterWeights::Pair part_of(const AdapterWeights::Pair& whole, int64_t begin, int64_t size, int64_t part,
                             int64_t parts) {
  const int64_t rank = whole.a.shape()[0], own = rank / parts;
  AdapterWeights::Pair out{whole.a, rows_of(whole.b, begin, size)};
  if (rank % parts) return out;
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < rank; ++column)
      if (column / own != part && out.b.as<float>()[row * rank + column] != 0) return out;
  return {rows_of(whole.a, part * own, own), columns_of(out.b, part * own, own)};
}

}  // namespace

std::string module_of_name(std::string_view name) {
  bool tells = name.starts_with('/');
  if (tells) name.remove_prefix(1);
  for (std::string_view end : {".weight", ".qweight"})
    if (const size_t at = name.rfind(end); at != std::string_view::npos) name = name.substr(0, at), tells = true;
  std::string path(name);
  if (tells) std::replace(path.begin(), path.end(), '/', '.');
  for (size_t dot;
       (dot = path.rfind('.')) != std::string::npos && is_product(std::string_view(path).substr(dot + 1));)
    path.resize(dot), tells = true;
  if (!tells) return path;
  const std::vector<std::string> steps = split(path, '.');
  if (steps.size() > 4 && steps[0] == "model" && steps[1] == "layers" && is_number(steps[2]) && steps[3] == "attn")
    path.replace(cat("model.layers.", steps[2], ".").size(), 4, "self_attn");
  return path;
}

std::vector<std::string> names_of_products(std::string_view name, std::span<const PackedProduct> products) {
  const std::string module = module_of_name(name);
  int64_t next = 0;
  bool whole = true;
  for (const PackedProduct& one : products) {
    whole = whole && one.begin == next;
    next += one.size;
  }
  const bool renamed = name.find("self_attn") == std::string_view::npos;
  const bool of_builder =
      renamed && module.ends_with(packed_attention) && products.size() == std::size(attention_parts);
  std::vector<std::string> out;
  for (size_t part = 0; part < products.size(); ++part)
    if (whole && of_builder)
      out.push_back(cat(module.substr(0, module.size() - packed_attention.size()), attention_parts[part]));
    else out.push_back(part ? cat(module, whole ? part_mark : ".copy", part) : module);
  return out;
}

bool means(std::string_view module, std::string_view product) {
  if (module == product) return true;
  const std::string known = module_of_part(module);
  const auto [packed, part] = packed_of(product);
  return known == product || known == packed || (part && known == cat(packed, part_mark, part));
}

AdapterWeights as_products(const AdapterWeights& adapter, std::span<const AdaptedLinear> products) {
  std::map<std::string, const AdaptedLinear*> named;
  std::map<std::string, std::map<int64_t, const AdaptedLinear*>> packed;
  for (const AdaptedLinear& one : products) {
    const auto [base, part] = packed_of(one.module);
    named[one.module] = packed[base][part] = &one;
  }
  AdapterWeights out = adapter;
  out.modules.clear();
  for (const auto& [module, pair] : adapter.modules) {
    const std::string known = module_of_part(module);
    const auto [base, part] = split_part(known);
    const std::map<int64_t, const AdaptedLinear*>& parts = packed[base];
    const int64_t rows = pair.b.shape()[0];
    int64_t all = 0;
    for (const auto& [number, one] : parts) all += one->n;
    const auto numbered = parts.find(part);
    if (named.contains(module) && named[module]->n == rows) {
      out.modules[module] = pair;
    } else if (named.contains(known) && named[known]->n == rows) {
      out.modules[known] = pair;
    } else if (!part && rows == all) {  // a packed weight's, whole
      int64_t begin = 0;
      for (const auto& [number, one] : parts) {
        out.modules[one->module] = part_of(pair, begin, one->n, number, std::ssize(parts));
        begin += one->n;
      }
    } else if (numbered != parts.end() &&
               numbered->second->n == rows) {  // of queries, keys and values by their number
      out.modules[numbered->second->module] = pair;
    } else {
      out.modules[module] = pair;
    }
  }
  for (const auto& [module, pair] : out.modules)
    if (named.contains(module) && pair.a.shape()[0] != out.rank)
      throw Error(Code::unsupported,
                  cat("its ", quote(module), " has the rank ", pair.a.shape()[0], ", others have ", out.rank),
                  "adapters of one rank and alpha are read");
  return out;
}

AdapterWeights as_modules(const AdapterWeights& adapter) {
  AdapterWeights out = adapter;
  out.modules.clear();
  std::map<std::string, std::map<int64_t, const AdapterWeights::Pair*>> packed;
  for (const auto& [module, pair] : adapter.modules) {
    const auto [base, part] = split_part(module);
    packed[base][part] = &pair;
  }
  for (const auto& [base, parts] : packed) {
    int64_t rows = 0, ranks = 0;
    for (const auto& [number, pair] : parts) rows += pair->b.shape()[0], ranks += pair->a.shape()[0];
    const int64_t k = parts.begin()->second->a.shape()[1];
    AdapterWeights::Pair whole{Tensor(DType::f32, {ranks, k}), Tensor(DType::f32, {rows, ranks})};
    std::memset(whole.b.data(), 0, static_cast<size_t>(whole.b.bytes()));
    int64_t row = 0, rank = 0;
    for (const auto& [number, pair] : parts) {
      const int64_t own = pair->a.shape()[0], n = pair->b.shape()[0];
      std::memcpy(whole.a.as<float>() + rank * k, pair->a.data(), static_cast<size_t>(pair->a.bytes()));
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(whole.b.as<float>() + (row + i) * ranks + rank, pair->b.as<float>() + i * own,
                    static_cast<size_t>(4 * own));
      row += n;
      rank += own;
    }
    out.modules[base] = std::move(whole);
  }
  return out;
}

}  // namespace plait

#include "core/passes/adapt/module_names.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/base/decoder.h"

namespace plait {
namespace {

constexpr std::string_view part_mark = ".part", copy_mark = ".copy";
/// Names of the packed query, key and value projection: the model builder's, and that of models which have one.
constexpr std::string_view packed_by_builder = ".attn.qkv_proj", packed_attention = ".self_attn.qkv_proj";
constexpr std::string_view attention_parts[] = {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"};

/// Names of a node within its module: "MatMul", "Gemm_3", "MatMul_Q4", "MatMulNBits", "Gather".
bool is_op_of_module(std::string_view name) {
  for (std::string_view op : {"MatMulNBits", "MatMul", "Gemm", "GatherBlockQuantized", "Gather"})
    if (name.starts_with(op)) return name.size() == op.size() || name[op.size()] == '_';
  return false;
}

bool is_number(std::string_view text) {
  int64_t ignored;
  return parse_int(text, ignored);
}

std::string without_end(std::string_view name, std::string_view end) {
  return std::string(name.substr(0, name.size() - end.size()));
}

/// Module and number of "module.part2"; number 0 for others.
std::pair<std::string, int64_t> split_mark(std::string_view name, std::string_view mark) {
  const size_t at = name.rfind(mark);
  int64_t number = 0;
  if (at == std::string_view::npos || !parse_int(name.substr(at + mark.size()), number))
    return {std::string(name), 0};
  return {std::string(name.substr(0, at)), number};
}

/// "model.layers.0" of the builder's "model.layers.0.attn.qkv_proj"; "" for others.
std::string layer_of_builder(std::string_view name) {
  const bool its = name.starts_with("model.layers.") && name.ends_with(packed_by_builder);
  return its ? without_end(name, packed_by_builder) : std::string();
}

std::string attention_part(const std::string& layer, size_t part) { return cat(layer, attention_parts[part]); }

/// The packed weight of a part's name, in any scheme, and the part's number.
std::pair<std::string, int64_t> packed_of(std::string_view name) {
  for (int64_t part = 0; part < std::ssize(attention_parts); ++part)
    if (const std::string_view end = attention_parts[part]; name.ends_with(end))
      return {cat(without_end(name, end), packed_attention), part};
  auto out = split_mark(name, part_mark);
  if (!out.second) out = split_mark(name, copy_mark);
  if (const std::string layer = layer_of_builder(out.first); !layer.empty()) out.first = cat(layer, packed_attention);
  return out;
}

/// Whether the name may mean all parts: the first may be unnumbered.
bool may_be_whole(std::string_view name) {
  return !split_mark(name, part_mark).second &&
         std::none_of(std::begin(attention_parts), std::end(attention_parts),
                      [&](std::string_view end) { return name.ends_with(end); });
}

std::string module_of_part(std::string_view name) {
  const auto [base, part] = split_mark(name, part_mark);
  const std::string module = module_of_name(base);
  return part ? cat(module, part_mark, part) : module;
}

/// Rows [begin, begin + count) of a matrix.
Tensor rows_of(const Tensor& matrix, int64_t begin, int64_t count) {
  const int64_t width = matrix.shape()[1];
  return Tensor::of<float>(DType::f32, {count, width},
                           {matrix.as<float>() + begin * width, static_cast<size_t>(count * width)});
}

/// Columns [begin, begin + count).
Tensor columns_of(const Tensor& matrix, int64_t begin, int64_t count) {
  const int64_t rows = matrix.shape()[0], width = matrix.shape()[1];
  Tensor out(DType::f32, {rows, count});
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(out.as<float>() + row * count, matrix.as<float>() + row * width + begin,
                static_cast<size_t>(4 * count));
  return out;
}

/// The adapter of part `part` of `parts`, which are these rows of b. Parts that had adapters of their own have `own`
/// ranks each, with zeros in the others' rows; a part without an adapter has only zeros.
AdapterWeights::Pair part_of(const AdapterWeights::Pair& whole, int64_t begin, int64_t size, int64_t part,
                             int64_t parts, int64_t own) {
  const int64_t rank = whole.a.shape()[0];
  AdapterWeights::Pair out{whole.a, rows_of(whole.b, begin, size)};
  if (rank % own) return out;
  std::set<int64_t> used;
  for (int64_t i = 0; i < size * rank; ++i)
    if (out.b.as<float>()[i] != 0) used.insert(i % rank / own);
  if (used.size() > 1) return out;
  const int64_t first = own * (used.empty() ? (rank == own * parts ? part : 0) : *used.begin());
  return {rows_of(whole.a, first, own), columns_of(out.b, first, own)};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

/// `n` rows of b; each pair has its rows from an offset on, and its own ranks, which are shared if all have the same
/// a.
using Placed = std::vector<std::pair<int64_t, const AdapterWeights::Pair*>>;
AdapterWeights::Pair stacked(const Placed& pairs, int64_t n) {
  const Tensor& first = pairs[0].second->a;
  const bool shares =
      std::all_of(pairs.begin(), pairs.end(), [&](const auto& one) { return same(one.second->a, first); });
  int64_t ranks = 0;
  for (const auto& [begin, pair] : pairs) ranks += pair->a.shape()[0];
  if (shares) ranks = first.shape()[0];
  const int64_t k = first.shape()[1];
  AdapterWeights::Pair out{Tensor(DType::f32, {ranks, k}), Tensor(DType::f32, {n, ranks})};
  std::memset(out.b.data(), 0, static_cast<size_t>(out.b.bytes()));
  int64_t rank = 0;
  for (const auto& [begin, pair] : pairs) {
    const int64_t own = pair->a.shape()[0];
    std::memcpy(out.a.as<float>() + rank * k, pair->a.data(), static_cast<size_t>(pair->a.bytes()));
    for (int64_t i = 0; i < pair->b.shape()[0]; ++i)
      std::memcpy(out.b.as<float>() + (begin + i) * ranks + rank, pair->b.as<float>() + i * own,
                  static_cast<size_t>(4 * own));
    if (!shares) rank += own;
  }
  return out;
}

/// The builder's packed projection from a layer's queries, keys and values, some of which may be missing; nullopt if
/// they do not fit.
std::optional<AdapterWeights::Pair> packed(const std::map<std::string, AdapterWeights::Pair>& modules,
                                           const std::string& layer, const AdaptedLinear& product) {
  const AdapterWeights::Pair* found[std::size(attention_parts)] = {};
  for (size_t part = 0; part < std::size(found); ++part)
    if (auto one = modules.find(attention_part(layer, part)); one != modules.end()) found[part] = &one->second;
  auto rows = [&](size_t part) { return found[part] ? found[part]->b.shape()[0] : 0; };
  const int64_t values = found[2] ? rows(2) : rows(1);  // as many as keys
  const int64_t begins[] = {0, product.n - values - rows(1), product.n - values};
  Placed placed;
  int64_t end = 0;
  for (size_t part = 0; part < std::size(found); ++part) {
    if (!found[part]) continue;
    if (begins[part] < end || found[part]->a.shape()[1] != product.k) return std::nullopt;
    placed.emplace_back(begins[part], found[part]);
    end = begins[part] + rows(part);
  }
  if (placed.empty() || end > product.n) return std::nullopt;
  return stacked(placed, product.n);
}

/// Pads all pairs to `rank` with zeros, and scales alpha so that alpha / rank stays.
void widen(AdapterWeights& adapter, int64_t rank) {
  for (auto& [module, pair] : adapter.modules) {
    const int64_t own = pair.a.shape()[0], n = pair.b.shape()[0];
    AdapterWeights::Pair wide{Tensor(DType::f32, {rank, pair.a.shape()[1]}), Tensor(DType::f32, {n, rank})};
    std::memset(wide.a.data(), 0, static_cast<size_t>(wide.a.bytes()));
    std::memset(wide.b.data(), 0, static_cast<size_t>(wide.b.bytes()));
    std::memcpy(wide.a.data(), pair.a.data(), static_cast<size_t>(pair.a.bytes()));
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(wide.b.as<float>() + i * rank, pair.b.as<float>() + i * own, static_cast<size_t>(4 * own));
    pair = std::move(wide);
  }
  adapter.alpha *= static_cast<double>(rank) / static_cast<double>(adapter.rank);
  adapter.rank = rank;
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
       (dot = path.rfind('.')) != std::string::npos && is_op_of_module(std::string_view(path).substr(dot + 1));)
    path.resize(dot), tells = true;
  if (!tells) return path;
  const std::vector<std::string> steps = split(path, '.');
  const bool of_builder = steps.size() > 4 && steps[0] == "model" && steps[1] == "layers" && is_number(steps[2]) &&
                          steps[3] == "attn" && layer_of_builder(path).empty();
  if (of_builder) path.replace(cat("model.layers.", steps[2], ".").size(), steps[3].size(), "self_attn");
  return path;
}

std::vector<std::string> names_of_products(std::string_view name, std::span<const PackedProduct> products) {
  const std::string module = module_of_name(name), layer = layer_of_builder(module);
  int64_t next = 0;
  bool whole = true;
  for (const PackedProduct& one : products) {
    whole = whole && one.begin == next;
    next += one.size;
  }
  const bool is_attention = whole && !layer.empty() && products.size() == std::size(attention_parts);
  std::vector<std::string> out;
  for (size_t part = 0; part < products.size(); ++part)
    if (is_attention) out.push_back(attention_part(layer, part));
    else out.push_back(part ? cat(module, whole ? part_mark : copy_mark, part) : module);
  return out;
}

bool are_of_one_module(const std::vector<std::string>& names) {
  return std::all_of(names.begin() + 1, names.end(), [&](const std::string& name) {
    const auto [module, part] = split_mark(name, part_mark);
    return part && module == names[0];
  });
}

bool means(std::string_view module, std::string_view product) {
  const std::string known = module_of_part(module);
  if (module == product || known == product) return true;
  const auto [of_module, number] = packed_of(known);
  const auto [of_product, part] = packed_of(product);
  return of_module == of_product && (number == part || may_be_whole(known) || !layer_of_builder(product).empty());
}

AdapterWeights as_products(const AdapterWeights& adapter, std::span<const AdaptedLinear> products) {
  std::map<std::string, const AdaptedLinear*> named;
  std::map<std::string, std::map<int64_t, const AdaptedLinear*>> families;
  for (const AdaptedLinear& one : products) {
    const auto [base, part] = packed_of(one.module);
    named[one.module] = families[base][part] = &one;
  }
  AdapterWeights out = adapter;
  out.modules.clear();
  for (const auto& [module, pair] : adapter.modules) {
    const std::string known = module_of_part(module);
    const auto [base, part] = packed_of(known);
    const std::map<int64_t, const AdaptedLinear*>& parts = families[base];
    const int64_t rows = pair.b.shape()[0];
    int64_t all = 0;
    for (const auto& [number, one] : parts) all += one->n;
    const auto numbered = parts.find(part);
    if (named.contains(module) && named[module]->n == rows) {
      out.modules[module] = pair;
    } else if (named.contains(known) && named[known]->n == rows) {
      out.modules[known] = pair;
    } else if (may_be_whole(known) && rows == all) {
      int64_t begin = 0;
      for (const auto& [number, one] : parts) {
        out.modules[one->module] = part_of(pair, begin, one->n, number, std::ssize(parts), adapter.rank);
        begin += one->n;
      }
    } else if (numbered != parts.end() && numbered->second->n == rows) {
      out.modules[numbered->second->module] = pair;
    } else {
      out.modules[module] = pair;
    }
  }
  int64_t most = out.rank;
  for (const AdaptedLinear& one : products) {
    const std::string layer = layer_of_builder(one.module);
    if (layer.empty() || out.modules.contains(one.module)) continue;
    std::optional<AdapterWeights::Pair> pair = packed(out.modules, layer, one);
    if (!pair) continue;
    most = std::max(most, pair->a.shape()[0]);
    for (size_t part = 0; part < std::size(attention_parts); ++part) out.modules.erase(attention_part(layer, part));
    out.modules[one.module] = std::move(*pair);
  }
  if (most > out.rank) widen(out, most);
  for (const auto& [module, pair] : out.modules)
    if (named.contains(module) && pair.a.shape()[0] != out.rank)
      throw Error(Code::unsupported,
                  cat("its ", quote(module), " has the rank ", pair.a.shape()[0], ", others have ", out.rank),
                  "adapters of one rank and alpha are read");
  return out;
}

AdapterWeights as_modules(const AdapterWeights& adapter, const Decoder& decoder) {
  AdapterWeights out = adapter;
  out.modules.clear();
  std::map<std::string, std::map<int64_t, const AdapterWeights::Pair*>> families;
  for (const auto& [module, pair] : adapter.modules) {
    const auto [base, part] = split_mark(module, part_mark);
    families[base][part] = &pair;
  }
  for (const auto& [base, parts] : families) {
    const AdapterWeights::Pair& first = *parts.begin()->second;
    const std::string layer = layer_of_builder(base);
    const auto heads = std::find_if(decoder.layers.begin(), decoder.layers.end(), [&](const AttentionLayer& one) {
      return one.query_heads * one.key_size + one.kv_heads * (one.key_size + one.value_size) == first.b.shape()[0];
    });
    if (!layer.empty() && parts.size() == 1 && heads != decoder.layers.end()) {
      const int64_t sizes[] = {heads->query_heads * heads->key_size, heads->kv_heads * heads->key_size,
                               heads->kv_heads * heads->value_size};
      int64_t begin = 0;
      for (size_t part = 0; part < std::size(sizes); begin += sizes[part++])
        out.modules[attention_part(layer, part)] = {first.a, rows_of(first.b, begin, sizes[part])};
      continue;
    }
    if (first.of_table) {
      out.modules[base] = first;
      continue;
    }
    Placed placed;
    int64_t rows = 0;
    for (const auto& [number, pair] : parts) {
      placed.emplace_back(pair->rows ? pair->begin : rows, pair);
      rows += pair->b.shape()[0];
    }
    out.modules[base] = stacked(placed, first.rows ? first.rows : rows);
  }
  return out;
}

}  // namespace plait

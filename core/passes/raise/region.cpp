// Raise, regions: the part of a graph between one value and the single data value from which it is computed.
#include "core/passes/raise/region.h"

#include <algorithm>
#include <cmath>

#include "core/base/error_kind.h"

namespace plait {

std::vector<Region> regions_of(const Graph& graph, const std::vector<int32_t>& producer,
                               const std::vector<bool>& data, ValueId output, size_t limit) {
  std::vector<Region> found;
  std::vector<int32_t> inside;  // node indices, in order of addition
  std::vector<ValueId> frontier{output};
  auto maker = [&](ValueId id) { return producer[static_cast<size_t>(id)]; };
  while (inside.size() < limit) {
    // Expands the latest frontier value first: its ancestors may still join the others.
    auto last =
        std::max_element(frontier.begin(), frontier.end(), [&](ValueId a, ValueId b) { return maker(a) < maker(b); });
    if (last == frontier.end() || maker(*last) < 0) break;
    const Node& node = graph.nodes[static_cast<size_t>(maker(*last))];
    if (!node.bodies.empty() || reads_segments(node.op)) break;
    inside.push_back(maker(*last));
    for (ValueId made : node.outputs)
      frontier.erase(std::remove(frontier.begin(), frontier.end(), made), frontier.end());
    for (ValueId id : node.inputs)
      if (id != no_value && data[static_cast<size_t>(id)] &&
          std::find(frontier.begin(), frontier.end(), id) == frontier.end())
        frontier.push_back(id);
    if (frontier.size() != 1) continue;
    Region region;
    region.output = output;
    region.entry = frontier[0];
    region.nodes = inside;
    std::sort(region.nodes.begin(), region.nodes.end());
    for (int32_t index : region.nodes)
      for (ValueId id : graph.nodes[static_cast<size_t>(index)].inputs)
        if (id != no_value && !data[static_cast<size_t>(id)] && !graph.value(id).constant &&
            std::find(region.side.begin(), region.side.end(), id) == region.side.end())
          region.side.push_back(id);
    found.push_back(std::move(region));
  }
  return found;
}

std::vector<float> floats(const Tensor& tensor) {
  Tensor f32 = materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f32}}});
  return {f32.as<float>(), f32.as<float>() + f32.elements()};
}

bool close(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return false;
    largest = std::max<double>(largest, std::fabs(b[i]));
    difference = std::max<double>(difference, std::fabs(double{a[i]} - double{b[i]}));
  }
  constexpr double agreement = 2e-5;  // a few f32 roundings in a row
  return difference <= agreement * std::max(largest, 1e-6);
}

std::vector<float> samples(size_t count, float low, float high) {
  std::vector<float> out(count);
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (float& value : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = low + (high - low) * static_cast<float>(static_cast<double>(state >> 40) / double{1 << 24});
  }
  return out;
}

const Dims* RegionProbe::dims(ValueId id) const {
  const auto& found = graph.value(id).type.dims;
  return found ? &*found : nullptr;
}

std::optional<int64_t> RegionProbe::last_size(ValueId id) const {
  const Dims* found = dims(id);
  if (!found || found->empty() || !found->back().is_constant()) return std::nullopt;
  return found->back().constant();
}

std::optional<std::vector<float>> RegionProbe::run(const Region& region, const Shape& shape, int64_t tokens,
                                                   const std::vector<float>& entry,
                                                   const std::vector<std::pair<ValueId, Tensor>>& side) const {
  if (context_.options.progress) context_.options.progress->check();
  Evaluator evaluator(context_, graph);
  Tensor f32 = Tensor::of<float>(DType::f32, shape, entry);
  DType dtype = graph.value(region.entry).type.dtype;
  evaluator.bind(region.entry, materialize({{}, f32, {{RecipeStep::Kind::cast, {}, dtype}}}));
  for (const auto& [id, tensor] : side) evaluator.bind(id, tensor);
  for (SymbolId id = 0; id < graph.symbols.size(); ++id) evaluator.bind_symbol(id, tokens);
  try {
    return floats(evaluator.value(region.output));
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    return std::nullopt;
  }
}

Tensor RegionProbe::at_positions(ValueId id, const std::vector<int32_t>& places) const {
  auto count = static_cast<int64_t>(places.size());
  Evaluator evaluator(context_, graph);
  for (ValueId input : graph.inputs) {  // long enough to contain the token
    if (const std::string& name = graph.value(input).name; name == "positions" || name == "lengths") {
      std::vector<int32_t> numbers = places;
      for (int32_t& number : numbers) number += name == "lengths";
      evaluator.bind(input, Tensor::of<int32_t>(DType::i32, {1, count}, numbers));
    } else if (name == mrope_positions_input) {
      const int64_t rows = context_.decoder.interface.position_rows;
      std::vector<int32_t> numbers;
      for (int32_t place : places) numbers.insert(numbers.end(), static_cast<size_t>(rows), place);
      evaluator.bind(input, Tensor::of<int32_t>(DType::i32, {1, count, rows}, numbers));
    }
  }
  for (SymbolId symbol = 0; symbol < graph.symbols.size(); ++symbol) evaluator.bind_symbol(symbol, count);
  return evaluator.value(id);
}

}  // namespace plait

#pragma once
// Reference kernels that round x of products to bf16 where the node allows it (`round_x`), as devices do, and processors that multiply
// pairs of such numbers: what option dtype=bf16 computes there, on any processor. Without experts and adapters.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "kernels/reference/reference.h"

namespace plait::test {

/// To the nearest, halves to even; finite numbers only.
inline float rounded_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u);
}

constexpr std::array rounding_ops{"plait.Linear", "plait.Linears", "plait.GatedLinear"};

template <size_t OP>
const Kernel& reference_product() {
  static const Kernel kernel = [] {
    KernelTable table;
    register_reference_kernels(table);
    const auto& all = table.all();
    return **std::ranges::find_if(all, [](const auto& one) { return one->op == rounding_ops[OP]; });
  }();
  return kernel;
}

template <size_t OP>
void add_rounding_product(KernelTable& table) {
  Kernel kernel = reference_product<OP>();
  kernel.priority = 1;
  kernel.accepts = [](const NodeInfo& node) {
    return node.inputs[0].dtype == DType::f32 && node.attributes.integer("round_x", 0) == 1;
  };
  kernel.run = [](const KernelCall& call) {
    const TensorView& x = call.inputs[0];
    std::vector<float> narrow(static_cast<size_t>(x.elements()));
    std::transform(x.as<float>(), x.as<float>() + narrow.size(), narrow.begin(), rounded_to_bf16);
    std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
    inputs[0].data = reinterpret_cast<std::byte*>(narrow.data());
    KernelCall again = call;
    again.inputs = inputs;
    return reference_product<OP>().run(again);
  };
  table.add(std::move(kernel));
}

inline void register_rounding_kernels(KernelTable& table) {
  register_reference_kernels(table);
  add_rounding_product<0>(table);
  add_rounding_product<1>(table);
  add_rounding_product<2>(table);
}

}  // namespace plait::test

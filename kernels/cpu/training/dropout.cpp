// plait.Dropout: a pass over x with a few integer operations per four elements.
#include <algorithm>

#include "core/base/counter_random.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct DropoutState : KernelState {
  Dropout dropout;
  int64_t offset = 0;  ///< of the first feature
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<DropoutState>();
  state->dropout =
      Dropout(node.attributes.real("rate", 0), static_cast<uint64_t>(node.attributes.integer("module", 0)));
  state->offset = ShardedAxis::of(node.attributes).offset;
  return state;
}

/// x [..., k], keys [...] -> [..., k].
KernelStatus run(const KernelCall& call) {
  const auto& [dropout, offset] = *static_cast<const DropoutState*>(call.state);
  const int64_t k = call.inputs[0].shape.back(1), rows = call.inputs[1].elements();
  const auto* x = call.inputs[0].as<float>();
  const auto* keys = call.inputs[1].as<int64_t>();
  auto* y = call.outputs[0].as<float>();
  share_ranges(call.pool, rows, 1, 2 * k, [&, &dropout = dropout, offset = offset](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) dropout.apply(x + row * k, keys[row], offset, k, y + row * k);
  });
  return {};
}

bool accepts(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 && node.inputs[1].dtype == DType::i64;
}

}  // namespace

void add_dropout(KernelTable& table, Isa isa) {
  if (isa != Isa::avx2) return;  // left to the compiler
  add_kernel(
      table, isa,
      {.op = "plait.Dropout", .dtypes = "f32", .accepts = accepts, .prepare = prepare, .run = run, .in_place = 0});
}

}  // namespace plait::cpu

// plait.ChannelsLastPool of f32.
#include "kernels/cpu/image/plane_windows.h"
#include "kernels/cpu/image/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct LastPoolState : KernelState {
  explicit LastPoolState(const NodeInfo& node)
      : windows(node.attributes),
        counts_padding(node.attributes.integer("count_include_pad", 0) != 0),
        mean(node.attributes.string("kind", "") == "mean") {}
  WindowAttributes windows;
  bool counts_padding, mean;
};

std::shared_ptr<const KernelState> prepare_last_pool(const NodeInfo& node) {
  return std::make_shared<LastPoolState>(node);
}

bool accepts_last_pool(const NodeInfo& node) {
  const std::string kind = node.attributes.string("kind", "");
  return is_f32(node, 0) && (node.inputs[0].rank == 3 || node.inputs[0].rank == 4) &&
         (kind == "max" || kind == "mean");
}

template <Isa isa>
KernelStatus run_last_pool(const KernelCall& call) {
  const auto& state = *static_cast<const LastPoolState*>(call.state);
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const PlaneWindows n(x.shape, y.shape, state.windows.kernel, state.windows);
  if (y.elements() == 0) return {};
  const ChannelLoops& loops = channel_loops(isa);
  const int64_t rows = n.batch * n.down.out;
  share_ranges(call.pool, rows, 1, n.across.out * n.channels * n.taps() / 8, [&](int64_t begin, int64_t end, int) {
    std::vector<const float*> from, by;
    for (int64_t row = begin; row < end; ++row) {
      check_stopped();
      window_runs(n, x.as<float>(), nullptr, y.as<float>(), row, state.counts_padding, from, by,
                  [&](const WindowRun& run) { (state.mean ? loops.mean : loops.greatest)(run); });
    }
  });
  return {};
}

}  // namespace

void add_channels_last_pool(KernelTable& table, Isa isa) {
  if (isa != Isa::avx2 && isa != Isa::avx512) return;
  add_kernel(table, isa,
             {.op = "plait.ChannelsLastPool",
              .dtypes = "f32",
              .accepts = accepts_last_pool,
              .prepare = prepare_last_pool,
              .run = isa == Isa::avx2 ? run_last_pool<Isa::avx2> : run_last_pool<Isa::avx512>});
}

}  // namespace plait::cpu

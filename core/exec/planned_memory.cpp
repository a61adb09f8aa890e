#include "core/exec/planned_memory.h"

#include <algorithm>

namespace plait {
namespace {

/// Types and shapes of buffers at the largest sizes; no data.
class LargestViews {
 public:
  LargestViews(const Program& program, std::span<const int64_t> largest) : program_(program), largest_(largest) {}

  TensorView of(BufferId id) const {
    if (id < 0) return {};
    const Buffer& buffer = program_.buffers[static_cast<size_t>(id)];
    const bool stored = buffer.place == Buffer::Place::store;
    const Dims& dims = stored ? program_.entries[static_cast<size_t>(buffer.index)].dims : buffer.dims;
    TensorView out{nullptr, buffer.dtype, {}};
    for (const Dim& dim : dims) out.shape.push_back(dim.evaluate(largest_));
    return out;
  }
  std::vector<TensorView> of(const std::vector<BufferId>& ids) const {
    std::vector<TensorView> out;
    for (BufferId id : ids) out.push_back(of(id));
    return out;
  }
  bool known(const std::vector<BufferId>& ids) const {
    return std::all_of(ids.begin(), ids.end(),
                       [&](BufferId id) { return id < 0 || program_.buffers[static_cast<size_t>(id)].sized; });
  }

 private:
  const Program& program_;
  const std::span<const int64_t> largest_;
};

/// As Executor::compute and Executor::collective ask for.
int64_t scratch_of(const Instruction& one, const LargestViews& views, int threads) {
  const std::vector<TensorView> in = views.of(one.inputs), out = views.of(one.outputs);
  int64_t bytes = 0;
  if (one.kind == Instruction::Kind::collective) {
    if (one.kernel) bytes = in[static_cast<size_t>(one.call.dim)].bytes();
    else if (one.workspace < 0) bytes = one.call.workspace_bytes(in[0], out[0]);
  }
  if (one.kernel && one.kernel->scratch_bytes)
    bytes = std::max(bytes, one.kernel->scratch_bytes(one.state.get(), in, out, threads));
  return bytes;
}

}  // namespace

PlannedMemory planned_memory(const Program& program, std::span<const int64_t> largest, int threads) {
  constexpr int64_t alignment = 64;
  const LargestViews views(program, largest);
  PlannedMemory out{.arena = program.arena_bytes};
  for (BufferId id : program.inputs)
    out.inputs = (out.inputs + alignment - 1) / alignment * alignment + views.of(id).bytes();
  for (const Instruction& one : program.instructions)
    if (views.known(one.inputs) && views.known(one.outputs))
      out.scratch = std::max(out.scratch, scratch_of(one, views, threads));
  return out;
}

std::vector<int64_t> bounds_of(const Program& program) {
  std::vector<int64_t> out;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) out.push_back(program.symbols[id].bound);
  return out;
}

}  // namespace plait

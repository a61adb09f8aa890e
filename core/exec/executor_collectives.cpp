// Execution of collectives. Communicators take flat arrays in rank order; blocks of a dim other than the first are
// gathered into such arrays, and scattered from them, here.
#include <algorithm>

#include "core/exec/executor.h"

namespace plait {
namespace {

TensorView flat(std::byte* data, DType dtype, int64_t elements) { return {data, dtype, {elements}}; }
TensorView flat(const TensorView& view) { return flat(view.data, view.dtype, view.elements()); }

/// Part `index` of concatenated parts, each shaped as `part`.
TensorView nth(const TensorView& part, std::byte* parts, int index) {
  return {parts + index * part.bytes(), part.dtype, part.shape};
}

/// Whether the blocks of a dim are contiguous: only dims of size 1 precede it.
bool leads(const Shape& shape, int dim) { return shape.elements(0, dim) == 1; }

}  // namespace

int64_t CollectiveCall::workspace_bytes(const TensorView& in, const TensorView& out) const {
  const CollectiveWorkspace workspace = workspace_of(kind, leads(in.shape, dim));
  return workspace.inputs * in.bytes() + workspace.outputs * out.bytes();
}

namespace {

/// Any kind except Kind::shard, in a queue of the device. `workspace`: of `workspace_bytes`.
void run_collective(const CollectiveCall& call, Device& device, Queue& queue, Communicator& group,
                    const TensorView& in, const TensorView& out, std::span<std::byte> workspace) {
  using Kind = CollectiveKind;
  std::byte* parts = workspace.data();
  switch (call.kind) {
    case Kind::all_reduce: return group.all_reduce_into(flat(in), flat(out), call.reduction);
    case Kind::all_gather: {
      if (leads(in.shape, call.dim)) return group.all_gather(flat(in), flat(out));
      group.all_gather(flat(in), flat(parts, in.dtype, out.elements()));
      for (int k = 0; k < call.parts; ++k)
        device.put_block(queue, out, call.dim, k * in.shape[call.dim], nth(in, parts, k));
      return;
    }
    case Kind::reduce_scatter: {
      if (leads(in.shape, call.dim)) return group.reduce_scatter(flat(in), flat(out), call.reduction);
      for (int k = 0; k < call.parts; ++k)
        device.take_block(queue, in, call.dim, k * out.shape[call.dim], nth(out, parts, k));
      return group.reduce_scatter(flat(parts, in.dtype, in.elements()), flat(out), call.reduction);
    }
    case Kind::all_to_all: {
      TensorView part{nullptr, in.dtype, in.shape};
      part.shape[call.to_dim] = out.shape[call.to_dim];
      std::byte* from = parts + in.bytes();
      for (int k = 0; k < call.parts; ++k)
        device.take_block(queue, in, call.to_dim, k * part.shape[call.to_dim], nth(part, parts, k));
      group.all_to_all(flat(parts, in.dtype, in.elements()), flat(from, in.dtype, in.elements()));
      for (int k = 0; k < call.parts; ++k)
        device.put_block(queue, out, call.dim, k * in.shape[call.dim], nth(part, from, k));
      return;
    }
    case Kind::shard: return;
  }
}

}  // namespace

/// Asynchronous collectives run in program order in the device's collective queue; while one is pending, synchronous
/// ones queue after it. So one thread at a time calls the communicators, in one order on all ranks.
void Executor::collective(size_t index) {
  const Instruction& instruction = program_->instructions[index];
  const CollectiveCall& call = instruction.call;
  if (instruction.kernel) {  // it takes the sum in place of an operand
    TensorView& operand = in_[static_cast<size_t>(call.dim)];
    Communicator& group = *groups_[static_cast<size_t>(call.group)];
    const bool waits = !pending_.empty();
    if (!waits && group.sum_into(operand, [&] { compute(instruction); })) return;
    const TensorView sum{scratch(operand.bytes()).data(), operand.dtype, operand.shape};
    if (waits) {  // collectives are in one order
      Queue& queue = device_.queue(Device::Use::collective);
      device_.wait(queue, device_.record(queue_));
      device_.wait(queue_,
                   device_.submit(queue, [&] { group.all_reduce_into(flat(operand), flat(sum), call.reduction); }));
    } else {
      group.all_reduce_into(flat(operand), flat(sum), call.reduction);
    }
    operand = sum;
    return compute(instruction);
  }
  const TensorView &in = in_[0], &out = out_[0];
  if (call.kind == CollectiveKind::shard)
    return device_.take_block(queue_, in, call.dim, call.part * out.shape[call.dim], out);

  const bool async = instruction.wait_before >= 0 && !watch_;
  std::span<std::byte> workspace;
  if (const int64_t bytes = call.workspace_bytes(in, out))
    workspace = instruction.workspace >= 0
                    ? std::span(views_[static_cast<size_t>(instruction.workspace)].data, static_cast<size_t>(bytes))
                    : scratch(bytes);
  Communicator& group = *groups_[static_cast<size_t>(call.group)];
  if (!async && pending_.empty()) return run_collective(call, device_, queue_, group, in, out, workspace);

  Queue& queue = device_.queue(Device::Use::collective);
  device_.wait(queue, device_.record(queue_));
  PendingCollective& one = pending_.emplace_back();
  one.wait_before = async ? instruction.wait_before : static_cast<int32_t>(index);
  one.trace.name = op_name(call.kind);
  one.trace.collective = one.trace.async = true;
  one.end = device_.submit(queue, [&call, &device = device_, &queue, &group, in, out, workspace, &trace = one.trace] {
    const double waited = group.waited_s();
    trace.begin = monotonic_s();
    run_collective(call, device, queue, group, in, out, workspace);
    trace.end = monotonic_s();
    trace.waited = group.waited_s() - waited;
  });
  due_ = std::min(due_, one.wait_before);
  if (!async) wait_before(one.wait_before);
}

/// Waits for all collectives due before instruction `next`; there is at least one.
void Executor::wait_before(int32_t next) {
  auto last = std::find_if(pending_.rbegin(), pending_.rend(),
                           [&](const PendingCollective& one) { return one.wait_before <= next; });
  const std::string_view name = last->trace.name;
  const double begin = monotonic_s();
  device_.wait(queue_, last->end);
  const double stood = monotonic_s() - begin;
  double waited = 0;
  for (auto end = last.base(); pending_.begin() != end; pending_.pop_front()) {
    waited += pending_.front().trace.waited;
    add_event(pending_.front().trace);
  }
  if (profiling_) {
    ProfileRow& row = profile_[std::string(name)];
    row.seconds += stood;
    row.waited += std::min(stood, waited);
  }
  due_ = never;
  for (const PendingCollective& one : pending_) due_ = std::min(due_, one.wait_before);
}

/// After a run that throws, waits until no work uses its memory.
void Executor::abandon() noexcept {
  if (!pending_.empty()) device_.abandon(device_.queue(Device::Use::collective));
  if (!device_.shares_host_memory()) device_.abandon(queue_);
  pending_.clear();
  due_ = never;
}

}  // namespace plait

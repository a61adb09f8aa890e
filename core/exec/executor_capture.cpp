// Runs by replay: a program that is run again with the same sizes on a device that captures is recorded at its second run, and again
// after its memory has moved. Whether a run is replayed depends on the sizes of all runs so far only, so it is the same on all ranks
// of a group, as NCCL requires of its calls.
#include <algorithm>

#include "core/exec/executor.h"

namespace plait {

/// Whether nothing of a run depends on the host: all instructions are kernels of the device, or collectives that only enqueue, and all
/// sizes follow from symbols.
bool Executor::capturable() const {
  if (!device_.captures()) return false;
  const auto sized = [&](BufferId id) { return program_->buffers[static_cast<size_t>(id)].sized; };
  return std::all_of(program_->inputs.begin(), program_->inputs.end(), sized) &&
         std::all_of(program_->instructions.begin(), program_->instructions.end(), [&](const Instruction& one) {
           if (one.infer) return false;
           if (one.kind == Instruction::Kind::compute) return one.kernel->device == device_.kind();
           if (one.kind != Instruction::Kind::collective) return false;
           const DType dtype = program_->buffers[static_cast<size_t>(one.inputs[0])].dtype;
           return one.call.kind == CollectiveKind::shard ||
                  groups_[static_cast<size_t>(one.call.group)]->captures(one.call.kind, dtype);
         });
}

/// False: the caller has to run the instructions one by one.
bool Executor::replay() {
  constexpr size_t most_kept = 32;
  if (!capturable_ || profiling_ || trace_ || watch_) return false;
  auto found = std::find_if(captured_.begin(), captured_.end(),
                            [&](const CapturedRun& one) { return one.symbols == symbols_; });
  if (found == captured_.end()) {
    if (captured_.size() == most_kept)
      captured_.erase(
          std::min_element(captured_.begin(), captured_.end(),
                           [](const CapturedRun& a, const CapturedRun& b) { return a.last_use < b.last_use; }));
    captured_.push_back({symbols_, ++uses_, nullptr});
    return false;
  }
  if (groups_.empty()) budget_->check();
  found->last_use = ++uses_;
  if (!found->launches) found->launches = device_.capture(queue_, [&] { execute_all(); });
  device_.replay(queue_, *found->launches);
  return true;
}

/// What was recorded has addresses that are not in use any more.
void Executor::forget_launches() {
  for (CapturedRun& one : captured_) one.launches.reset();
}

}  // namespace plait

// Runs by replay: a program that is run again with the same sizes on a device that captures is recorded at its second run.
#include <algorithm>

#include "core/exec/executor.h"

namespace plait {

/// Whether nothing of a run depends on the host: all instructions are kernels of the device, and all sizes follow from symbols.
bool Executor::capturable() const {
  if (!device_.captures()) return false;
  const auto sized = [&](BufferId id) { return program_->buffers[static_cast<size_t>(id)].sized; };
  return std::all_of(program_->inputs.begin(), program_->inputs.end(), sized) &&
         std::all_of(program_->instructions.begin(), program_->instructions.end(), [&](const Instruction& one) {
           return one.kind == Instruction::Kind::compute && !one.infer && one.kernel->device == device_.kind();
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
  budget_->check();
  found->last_use = ++uses_;
  if (!found->launches)
    found->launches = device_.capture(queue_, [&] {
      for (size_t i = 0; i < program_->instructions.size(); ++i) execute(i);
    });
  device_.replay(queue_, *found->launches);
  return true;
}

}  // namespace plait

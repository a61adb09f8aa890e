// Sums of ranks are joined with what comes before and after them, on a device. One kernel adds what comes from the other ranks, the
// residual, and makes the norm: an instruction of the collective, with the norm's kernel, takes the place of both (Executor::collective).
// And the kernel that makes a rank's part may write it to the other ranks itself (Instruction::begins_sum).
#include <algorithm>

#include "core/passes/lower/lower.h"

namespace plait {
namespace {

/// The operand of a norm of a device that may be a sum of ranks: what it adds, or its only one. -1: the kernel takes no sums.
int32_t summed_operand(const Instruction& one) {
  if (one.kind != Instruction::Kind::compute || one.kernel->device == DeviceKind::host || one.infer) return -1;
  const std::string_view op = one.kernel->op;
  if (op == "com.microsoft.SkipSimplifiedLayerNormalization" || op == "com.microsoft.SkipLayerNormalization")
    return 1;
  return op == "RMSNormalization" || op == "LayerNormalization" ? 0 : -1;
}

bool sums(const Instruction& one) {
  return one.kind == Instruction::Kind::collective && one.call.kind == CollectiveKind::all_reduce &&
         one.call.reduction == Reduction::sum && !one.call.async && !one.infer;
}

class Joiner {
 public:
  explicit Joiner(Program& program) : program_(program), reads_(program.buffers.size()) {
    for (const Instruction& one : program_.instructions)
      for (const BufferId id : one.inputs) count(id);
    for (const BufferId id : program_.outputs) count(id);
    for (const Buffer& one : program_.buffers)
      if (one.place == Buffer::Place::view) count(one.index);
  }

  void run() {
    std::vector<Instruction> kept;
    std::vector<bool> gone(program_.instructions.size());
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& sum = program_.instructions[i];
      if (!sums(sum) || sum.kernel || !is_read_once(sum.outputs[0])) continue;
      const size_t norm = reader(i);
      if (norm != none) gone[i] = join(sum, program_.instructions[norm]);
    }
    for (size_t i = 0; i < gone.size(); ++i)
      if (!gone[i]) kept.push_back(std::move(program_.instructions[i]));
    program_.instructions = std::move(kept);
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      if (const Instruction& sum = program_.instructions[i]; sums(sum)) mark_maker(i, root(summed(sum)));
  }

 private:
  static constexpr size_t none = SIZE_MAX;

  void count(BufferId id) {
    if (id >= 0) ++reads_[static_cast<size_t>(id)];
  }
  const Buffer& buffer(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }
  /// The buffer that has the bytes.
  BufferId root(BufferId id) const {
    return id >= 0 && buffer(id).place == Buffer::Place::view ? buffer(id).index : id;
  }
  static BufferId summed(const Instruction& sum) {
    return sum.inputs[sum.kernel ? static_cast<size_t>(sum.call.dim) : 0];
  }

  /// Of the sum of that number: what wrote `part` last, if its order among the collectives is that of the sum.
  void mark_maker(size_t sum, BufferId part) {
    using Kind = Instruction::Kind;
    if (buffer(part).dtype != DType::f32) return;
    for (size_t i = sum; i-- > 0;) {
      Instruction& one = program_.instructions[i];
      if (std::any_of(one.outputs.begin(), one.outputs.end(), [&](BufferId id) { return root(id) == part; })) {
        const bool launches = one.kind == Kind::compute && one.kernel->device != DeviceKind::host && !one.infer;
        if (launches && root(one.outputs[0]) == part) one.begins_sum = program_.instructions[sum].call.group;
        return;
      }
      if (one.kind != Kind::compute && one.kind != Kind::sizes) return;
    }
  }

  bool is_read_once(BufferId id) const {
    return reads_[static_cast<size_t>(id)] == 1 && buffer(id).place == Buffer::Place::arena &&
           buffer(id).dtype == DType::f32 && buffer(id).sized;
  }

  /// The instruction that reads the sum; none if another collective comes before it, since their order is one for all ranks.
  size_t reader(size_t sum) const {
    const BufferId id = program_.instructions[sum].outputs[0];
    for (size_t i = sum + 1; i < program_.instructions.size(); ++i) {
      const Instruction& one = program_.instructions[i];
      if (std::find(one.inputs.begin(), one.inputs.end(), id) != one.inputs.end()) return i;
      if (one.kind != Instruction::Kind::compute) return none;
      // What is summed may not be overwritten before.
      for (const BufferId made : one.outputs)
        if (made == program_.instructions[sum].inputs[0]) return none;
    }
    return none;
  }

  bool join(const Instruction& sum, Instruction& norm) {
    const int32_t operand = summed_operand(norm);
    if (operand < 0) return false;
    if (operand == 1 && norm.inputs[0] == sum.outputs[0]) std::swap(norm.inputs[0], norm.inputs[1]);
    BufferId& input = norm.inputs[static_cast<size_t>(operand)];
    if (input != sum.outputs[0]) return false;
    input = sum.inputs[0];
    norm.kind = Instruction::Kind::collective;
    norm.call = sum.call;
    norm.call.dim = operand;
    return true;
  }

  Program& program_;
  std::vector<int> reads_;  ///< by buffer: operands, outputs of the program, views
};

}  // namespace

void join_sums(Program& program) { Joiner(program).run(); }

}  // namespace plait

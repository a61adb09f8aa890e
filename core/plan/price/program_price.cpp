#include "core/plan/price/program_price.h"

#include <algorithm>

namespace plait {
namespace {

/// Whether it adds what a product made to a sum.
bool adds_product(const Instruction& instruction, const std::vector<bool>& product) {
  return instruction.kernel && instruction.kernel->op == "plait.Accumulate" &&
         std::any_of(instruction.inputs.begin() + 1, instruction.inputs.end(),
                     [&](BufferId id) { return id >= 0 && product[static_cast<size_t>(id)]; });
}

}  // namespace

ProgramPrice price_of(const Program& program, int64_t tokens, const PriceTerms& terms, int64_t rows) {
  struct Pending {
    CollectiveKind kind;
    int32_t wait_before;
    double end_s;
  };
  const std::vector<int64_t> sizes = symbol_sizes(program, tokens, rows ? rows : tokens);
  ProgramPrice out;
  std::vector<Pending> pending;
  std::vector<bool> product(program.buffers.size());  // by buffer: a product made it
  double now = 0, links = 0;                          // when the device and its links are free
  const auto wait = [&](const Pending& one) {
    if (one.end_s <= now) return;
    out.exposed_s[one.kind] += one.end_s - now;
    now = one.end_s;
  };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    std::erase_if(pending, [&](const Pending& one) {
      const bool due = one.wait_before <= static_cast<int32_t>(i);
      if (due) wait(one);
      return due;
    });
    InstructionPrice price = price_of(instruction, program, sizes, terms);
    if (price.flops > 0)
      for (const BufferId id : instruction.outputs)
        if (id >= 0) product[static_cast<size_t>(id)] = true;
    if (terms.machine.device.fused_sums && adds_product(instruction, product)) price = {};
    out.flops += price.flops;
    out.sent += price.sent;
    if (instruction.kind != Instruction::Kind::collective || instruction.call.kind == CollectiveKind::shard) {
      out.bytes += price.bytes;
      out.compute_s += price.seconds;
      now += price.seconds;
      continue;
    }
    links = std::max(links, now) + price.seconds;
    const Pending one{instruction.call.kind, instruction.wait_before, links};
    if (instruction.call.async && instruction.wait_before >= 0) pending.push_back(one);
    else wait(one);
  }
  for (const Pending& one : pending) wait(one);
  out.seconds = now;
  return out;
}

}  // namespace plait

#include "core/plan/price/instruction_price.h"

#include <algorithm>
#include <cmath>

#include "core/plan/price/op_work.h"

namespace plait {
namespace {

int64_t elements_of(const Dims& dims, const std::vector<int64_t>& sizes) {
  int64_t out = 1;
  for (const Dim& dim : dims) out *= std::max<int64_t>(dim.evaluate(sizes), 0);
  return out;
}

double array_bytes(const Dims& dims, DType dtype, const std::vector<int64_t>& sizes, const PriceTerms& terms) {
  const bool as_work = terms.work != DType::none && dtype == DType::f32;
  const int bits = dtype_bits(as_work ? terms.work : dtype);
  return static_cast<double>(elements_of(dims, sizes)) * bits / 8;
}

/// Operand types with numbers as sizes.
std::vector<Type> types_of(const Program& program, const std::vector<BufferId>& ids,
                           const std::vector<int64_t>& sizes) {
  std::vector<Type> out;
  for (BufferId id : ids) {
    Type& type = out.emplace_back();
    if (id < 0) continue;
    const Buffer& buffer = program.buffers[static_cast<size_t>(id)];
    type.dtype = buffer.dtype;
    Dims dims;
    for (const Dim& dim : buffer.dims) dims.push_back(Dim(dim.evaluate(sizes)));
    type.dims = std::move(dims);
  }
  return out;
}

bool has_attention(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& one) { return one.kernel && one.kernel->op == "plait.PackedAttention"; });
}

/// Whether an operand or result has whole rows of the residual stream.
bool has_whole_rows(const OpCall& call, const PriceTerms& terms) {
  const auto whole = [&](const Type& type) {
    return type.dims && type.dims->size() > 2 && type.dims->back() == Dim(terms.cut_hidden);
  };
  return terms.cut_hidden > 0 && (std::any_of(call.inputs.begin(), call.inputs.end(), whole) ||
                                  std::any_of(call.outputs.begin(), call.outputs.end(), whole));
}

/// The ranks that a program's group stands for.
std::vector<int32_t> group_of(const std::vector<int32_t>& ranks, const PriceTerms& terms) {
  const auto tensor = static_cast<int32_t>(terms.tensor);
  const bool along_data =
      std::any_of(ranks.begin(), ranks.end(), [&](int32_t rank) { return rank / tensor != ranks.front() / tensor; });
  if (terms.data == 0 || !along_data) return ranks;
  std::vector<int32_t> out;
  for (int32_t data = 0; data < static_cast<int32_t>(terms.data); ++data)
    for (const int32_t rank : ranks)
      if (rank / tensor == ranks.front() / tensor) out.push_back(data * tensor + rank % tensor);
  return out;
}

/// Links that a group has of a level, as bytes a second of each of its members.
double group_bandwidth(const Machine& machine, const LinkLevel& level, const std::vector<int32_t>& ranks) {
  const size_t at = static_cast<size_t>(&level - machine.levels.data());
  if (at == 0) return machine.bandwidth(level, 1);
  const LinkLevel& below = machine.levels[at - 1];
  const int64_t node = ranks.front() / below.ranks;
  const auto members =
      std::count_if(ranks.begin(), ranks.end(), [&](int32_t rank) { return rank / below.ranks == node; });
  // Members of one node split what they send over the cards that they have; cards that the node shares serve its other groups, too.
  const double own = level.shared ? level.bandwidth / static_cast<double>(below.ranks) : level.bandwidth;
  return std::min(own * static_cast<double>(members), below.bandwidth);
}

}  // namespace

std::vector<int64_t> symbol_sizes(const Program& program, int64_t tokens, int64_t rows) {
  std::vector<int64_t> out;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) {
    const Symbol& symbol = program.symbols[id];
    out.push_back(symbol.name == "t" ? tokens : symbol.name == "r" ? rows : std::max<int64_t>(symbol.bound, 1));
  }
  return out;
}

double buffer_bytes(const Buffer& buffer, const std::vector<int64_t>& sizes, const PriceTerms& terms) {
  return array_bytes(buffer.dims, buffer.dtype, sizes, terms);
}

double entry_bytes(const StoreEntry& entry, const std::vector<int64_t>& sizes, const PriceTerms& terms) {
  return array_bytes(entry.dims, entry.dtype, sizes, terms);
}

double sent_bytes(CollectiveKind kind, size_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  switch (kind) {
    case CollectiveKind::all_reduce: return 2 * (n - 1) / n * bytes;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all: return (n - 1) / n * bytes;
    case CollectiveKind::shard: return 0;
  }
  return 0;
}

double collective_seconds(CollectiveKind kind, const std::vector<int32_t>& ranks, double bytes,
                          const Machine& machine) {
  if (kind == CollectiveKind::shard || ranks.size() < 2) return 0;
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
  const LinkLevel& level = machine.level_between(*least, *most);
  const double hops =
      std::ceil(std::log2(static_cast<double>(ranks.size()))) * (kind == CollectiveKind::all_reduce ? 2 : 1);
  return sent_bytes(kind, ranks.size(), bytes) / group_bandwidth(machine, level, ranks) + hops * level.latency_s;
}

InstructionPrice price_of(const Instruction& instruction, const Program& program, const std::vector<int64_t>& sizes,
                          const PriceTerms& terms) {
  const DeviceSpeed& device = terms.machine.device;
  InstructionPrice out;
  const auto bytes_of = [&](BufferId id) {
    return id < 0 ? 0 : buffer_bytes(program.buffers[static_cast<size_t>(id)], sizes, terms);
  };
  for (BufferId id : instruction.inputs) out.bytes += bytes_of(id);
  for (BufferId id : instruction.outputs) out.bytes += bytes_of(id);
  if (instruction.kind == Instruction::Kind::collective) {
    const CollectiveCall& call = instruction.call;
    if (call.kind != CollectiveKind::shard) {
      const std::vector<int32_t> ranks = group_of(program.groups[static_cast<size_t>(call.group)], terms);
      const double whole = std::max(bytes_of(instruction.inputs[0]), bytes_of(instruction.outputs[0]));
      out.sent = sent_bytes(call.kind, ranks.size(), whole);
      out.seconds = collective_seconds(call.kind, ranks, whole, terms.machine);
      return out;
    }
  }
  out.seconds = device.moving_s(out.bytes) + device.launch_s;
  if (!instruction.kernel) return out;
  OpCall call{instruction.kernel->op, instruction.attributes, types_of(program, instruction.inputs, sizes),
              types_of(program, instruction.outputs, sizes)};
  call.sequence = terms.sequence;
  call.scores_kept = device.score_passes > 0 && (terms.scores_kept || has_attention(program));
  call.all_pairs = device.score_passes > 0;
  const OpWork work = work_of(call, terms.ops);
  if (work.in_place) out.bytes = 2 * (bytes_of(instruction.inputs[2]) + bytes_of(instruction.inputs[3]));
  if (work.rows_only) out.bytes = 2 * std::min(bytes_of(instruction.outputs[0]), bytes_of(instruction.inputs[0]));
  if (work.flops == 0 && has_whole_rows(call, terms)) out.bytes /= static_cast<double>(terms.tensor);
  DType type = terms.work != DType::none ? terms.work : DType::f32;
  if (terms.work == DType::none && instruction.attributes.integer("round_x", 0) == 1) type = DType::bf16;
  out.bytes += work.scores * device.score_passes * dtype_bits(type) / 8;
  out.flops = work.flops;
  const double computing =
      out.flops > 0 ? out.flops / device.flops_per_second(type, work.least_dim) / device.filled(work.tiles) : 0;
  // Scores are written and read by kernels of their own, between the products.
  const double moving = device.moving_s(out.bytes);
  out.seconds = (work.scores > 0 ? computing + moving : std::max(computing, moving)) + device.launch_s;
  return out;
}

}  // namespace plait

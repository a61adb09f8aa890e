// Pass plan: when each buffer's bytes are in use, where they lie in the arena at the symbols' bounds, and the
// fingerprint by which ranks know that they compiled the same thing.
#include <algorithm>

#include "core/base/text.h"
#include "core/passes/compile.h"

namespace plait {
namespace {

void find_lifetimes(Program& program) {
  auto root = [&](BufferId id) -> Buffer& {
    Buffer& buffer = program.buffers[static_cast<size_t>(id)];
    return buffer.place == Buffer::Place::view ? program.buffers[static_cast<size_t>(buffer.index)] : buffer;
  };
  auto end = static_cast<int32_t>(program.instructions.size());
  for (Buffer& buffer : program.buffers) buffer.born = end, buffer.dies = -1;
  for (int32_t i = 0; i < end; ++i) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    for (BufferId id : instruction.outputs)
      if (id >= 0) root(id).born = std::min(root(id).born, i), root(id).dies = std::max(root(id).dies, i);
    for (BufferId id : instruction.inputs)
      if (id >= 0) root(id).dies = std::max(root(id).dies, i);
  }
  for (BufferId id : program.outputs) root(id).dies = end;
}

void place(Program& program) {
  program.bounded = true;
  std::vector<int64_t> bounds;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) bounds.push_back(program.symbols[id].bound);
  std::vector<size_t> which;
  std::vector<int64_t> sizes;
  std::vector<int32_t> born, dies;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.place != Buffer::Place::arena || !buffer.sized || buffer.dies < 0) continue;
    for (const Dim& dim : buffer.dims)
      for (SymbolId id : dim.symbols()) program.bounded = program.bounded && bounds[static_cast<size_t>(id)] > 0;
    if (!program.bounded) return;
    std::vector<int64_t> dims;
    for (const Dim& dim : buffer.dims) dims.push_back(dim.evaluate(bounds));
    const int bits = dtype_bits(buffer.dtype);
    which.push_back(i);
    sizes.push_back(packed_bytes(checked_elements(dims, bits), bits));
    born.push_back(buffer.born);
    dies.push_back(buffer.dies);
  }
  std::vector<int64_t> offsets(which.size());
  program.arena_bytes = plan_offsets(sizes, born, dies, offsets);
  for (size_t k = 0; k < which.size(); ++k) program.buffers[which[k]].offset = offsets[k];
}

/// 64-bit FNV-1a over what determines the program's meaning.
std::string fingerprint(const Program& program) {
  uint64_t hash = 0xcbf29ce484222325u;
  auto add = [&](std::string_view text) {
    for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xFFu) * 0x100000001b3u;
  };
  for (SymbolId id = 0; id < program.symbols.size(); ++id) {
    const Symbol& symbol = program.symbols[id];
    add(cat(symbol.name, " ", symbol.typical, " ", symbol.bound, " ", symbol.multiple_of));
  }
  for (const Buffer& buffer : program.buffers)
    add(cat(static_cast<int>(buffer.place), " ", buffer.index, " ", dtype_name(buffer.dtype),
            text(buffer.dims, program.symbols), " ", buffer.offset));
  for (const StoreEntry& entry : program.entries) add(entry.key);
  for (const Instruction& instruction : program.instructions) {
    add(instruction.kernel ? instruction.kernel->op : "control");
    for (BufferId id : instruction.inputs) add(cat(id));
    for (BufferId id : instruction.outputs) add(cat("> ", id));
    for (const auto& body : instruction.bodies) add(body->fingerprint);
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) out[i] = digits[hash & 15];
  return out;
}

}  // namespace

void plan(Program& program) {
  find_lifetimes(program);
  place(program);
  program.fingerprint = fingerprint(program);
}

}  // namespace plait

// Pass plan: lifetimes of buffers, their offsets in the arena at the symbols' bounds, and the fingerprint by which
// ranks check that they compiled the same program.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/passes/lower/lower.h"

namespace plait {
namespace {

Buffer& root(Program& program, BufferId id) {
  Buffer& buffer = program.buffers[static_cast<size_t>(id)];
  return buffer.place == Buffer::Place::view ? program.buffers[static_cast<size_t>(buffer.index)] : buffer;
}

/// The instruction before which an asynchronous collective must end: the first that reads its output or writes either
/// operand. -1 if nothing is computed until then, since the comm thread would not pay off.
int32_t find_wait(Program& program, int32_t index) {
  const Instruction& call = program.instructions[static_cast<size_t>(index)];
  const Buffer &in = root(program, call.inputs[0]), &out = root(program, call.outputs[0]);
  bool computes = false;
  const auto end = static_cast<int32_t>(program.instructions.size());
  for (int32_t i = index + 1; i < end; ++i) {
    const Instruction& one = program.instructions[static_cast<size_t>(i)];
    auto has = [&](const std::vector<BufferId>& ids, const Buffer& buffer) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](BufferId id) { return id >= 0 && &root(program, id) == &buffer; });
    };
    if (has(one.inputs, out) || has(one.outputs, out) || has(one.outputs, in)) return computes ? i : -1;
    computes = computes || one.kind != Instruction::Kind::collective;
  }
  return computes ? end : -1;
}

void find_lifetimes(Program& program) {
  auto end = static_cast<int32_t>(program.instructions.size());
  for (Buffer& buffer : program.buffers) buffer.born = end, buffer.dies = -1;
  for (int32_t i = 0; i < end; ++i) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    for (BufferId id : instruction.outputs)
      if (id >= 0)
        root(program, id).born = std::min(root(program, id).born, i),
                      root(program, id).dies = std::max(root(program, id).dies, i);
    for (BufferId id : instruction.inputs)
      if (id >= 0) root(program, id).dies = std::max(root(program, id).dies, i);
  }
  for (BufferId id : program.outputs) root(program, id).dies = end;
  for (int32_t i = 0; i < end; ++i) {
    Instruction& one = program.instructions[static_cast<size_t>(i)];
    if (one.kind != Instruction::Kind::collective || !one.call.async) continue;
    one.wait_before = find_wait(program, i);
    const int32_t last = one.wait_before < 0 ? i : one.wait_before - 1;
    for (BufferId id : {one.inputs[0], one.outputs[0]})
      root(program, id).dies = std::max(root(program, id).dies, last);
    if (one.workspace >= 0) root(program, one.workspace).born = i, root(program, one.workspace).dies = last;
  }
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

/// Hashes what determines a program's meaning. Lists are prefixed with their lengths.
class Fingerprint : public Hasher {
 public:
  /// `of_ranks`: excludes what differs between ranks, where a rank's blocks begin.
  explicit Fingerprint(bool of_ranks) : of_ranks_(of_ranks) {}

  using Hasher::add;
  void add(int64_t number) { add(static_cast<uint64_t>(number)); }
  void add(int32_t number) { add(static_cast<int64_t>(number)); }
  void add(double number) { add(std::bit_cast<uint64_t>(number)); }
  void add(const std::string& text) { add(std::string_view(text)); }
  template <class One>
  void add(const std::vector<One>& list) {
    add(uint64_t{list.size()});
    for (const One& one : list) add(one);
  }
  void add(DType dtype, const Shape& shape) {
    add(dtype_name(dtype));
    add(shape.text());
  }
  void add(const Tensor& tensor) {
    add(tensor.dtype(), tensor.shape());
    add(tensor.data(), static_cast<size_t>(tensor.bytes()));
  }
  void add(const Constant& constant) {
    add(constant.initializer);
    add(text(of_ranks_ ? without_begins(constant.steps) : constant.steps));
    add(constant.parts);
    if (!constant.parts.empty()) return;
    if (constant.initializer.empty()) add(constant.source);  // nothing else identifies it
    else add(constant.source.dtype(), constant.source.shape());
  }
  void add(const Attributes& attributes) {
    for (const auto& [name, value] : attributes) {
      if (of_ranks_ && name == "offset") continue;
      add(name);
      add(attribute_kind(value));
      std::visit([&](const auto& known) { add(known); }, value);
    }
  }

  std::string text_form() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out(16, '0');
    uint64_t rest = value();
    for (size_t i = 16; i-- > 0; rest >>= 4) out[i] = digits[rest & 15];
    return out;
  }

 private:
  static std::vector<RecipeStep> without_begins(std::vector<RecipeStep> steps) {
    for (RecipeStep& step : steps)
      if (step.kind == RecipeStep::Kind::slice)
        step.numbers = {step.numbers[0], 0, step.numbers[2] - step.numbers[1]};
    return steps;
  }

  const bool of_ranks_;
};

std::string fingerprint(const Program& program, bool of_ranks) {
  Fingerprint print(of_ranks);
  for (SymbolId id = 0; id < program.symbols.size(); ++id) {
    const Symbol& symbol = program.symbols[id];
    print.add(cat(symbol.name, " ", symbol.typical, " ", symbol.bound, " ", symbol.multiple_of));
  }
  for (const Buffer& buffer : program.buffers)
    print.add(cat(static_cast<int>(buffer.place), " ", buffer.index, " ", dtype_name(buffer.dtype),
                  text(buffer.dims, program.symbols), " ", buffer.offset));
  for (const Slot& slot : program.slots)
    print.add(cat("slot ", static_cast<int>(slot.pool), " ", dtype_name(slot.dtype), text(slot.dims, program.symbols)));
  for (const StoreEntry& entry : program.entries) {
    if (entry.layout) print.add(std::string(entry.layout->name));
    if (entry.source) print.add(*entry.source);
    else print.add(entry.key);
  }
  for (const Instruction& instruction : program.instructions) {
    print.add(static_cast<int32_t>(instruction.kind));
    print.add(instruction.kernel ? instruction.kernel->op : std::string());
    print.add(instruction.inputs);
    print.add(instruction.outputs);
    print.add(text(instruction.sizes, program.symbols));
    print.add(instruction.carried);
    print.add(instruction.attributes);
    print.add(instruction.wait_before);
    const CollectiveCall& call = instruction.call;
    for (int32_t number : {static_cast<int32_t>(call.kind), static_cast<int32_t>(call.reduction), call.group,
                           call.dim, call.to_dim, call.parts})
      print.add(number);
    for (const auto& body : instruction.bodies) print.add(body->fingerprint);
  }
  print.add(program.inputs);
  print.add(program.outputs);
  return print.text_form();
}

}  // namespace

void plan(Program& program, bool of_ranks) {
  find_lifetimes(program);
  place(program);
  program.fingerprint = fingerprint(program, of_ranks);
}

}  // namespace plait

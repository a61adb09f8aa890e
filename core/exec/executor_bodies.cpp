// Execution of bodies: ONNX's If and Loop. (Scans were lowered to Loops: core/passes/normalize/scan.cpp.)
#include <algorithm>

#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/executor.h"

namespace plait {
namespace {

/// A loop-carried value. Double-buffered: other values of the same iteration may still pass the old bytes through.
class Carried {
 public:
  Carried(MemoryBudget& budget, Device& device) : budget_(budget), device_(device) {}
  /// The value after an iteration that began with `before`; not copied if the body left it unchanged.
  TensorView take(const TensorView& after, const TensorView& before) {
    if (after.data == before.data && after.bytes() == before.bytes()) return after;
    int64_t bytes = after.bytes();
    if (!spare_ || spare_->size() < bytes) {
      spare_.reset();
      spare_ = budget_.take(bytes, device_);
    }
    device_.copy(device_.queue(Device::Use::compute), spare_->mutable_data(), after.data, bytes);
    std::swap(now_, spare_);
    return {now_->mutable_data(), after.dtype, after.shape};
  }
  /// Owner of the bytes that `take` returned last; null while the value is the initial one.
  std::shared_ptr<Blob> release() { return std::move(now_); }

 private:
  MemoryBudget& budget_;
  Device& device_;
  std::shared_ptr<Blob> now_, spare_;
};

/// Scanned values of all iterations, concatenated. Capacity doubles, so each byte is copied at most twice on average.
class Stack {
 public:
  Stack(MemoryBudget& budget, Device& device) : budget_(budget), device_(device) {}
  void push(const TensorView& value) {
    if (count_ == 0) one_ = value;
    if (value.dtype != one_.dtype || !(value.shape == one_.shape))
      throw Error(Code::invalid_argument,
                  cat("is ", dtype_name(value.dtype), value.shape.text(), " in iteration ", count_, ", ",
                      dtype_name(one_.dtype), one_.shape.text(), " in those before"),
                  "values that are stacked must have one shape");
    if (value.shape.elements() * dtype_bits(value.dtype) % 8 != 0)
      throw Error(Code::unsupported, cat("is ", dtype_name(value.dtype), value.shape.text(), ", no whole bytes"));
    int64_t bytes = value.bytes(), used = count_ * bytes;
    if (!blob_ || blob_->size() < used + bytes) {
      auto grown = budget_.take(std::max(2 * used, bytes), device_);
      if (used) device_.copy(device_.queue(Device::Use::compute), grown->mutable_data(), blob_->data(), used);
      blob_ = std::move(grown);
    }
    device_.copy(device_.queue(Device::Use::compute), blob_->mutable_data() + used, value.data, bytes);
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  TensorView view() const {
    Shape shape{count_};
    for (int64_t size : one_.shape) shape.push_back(size);
    return {blob_->mutable_data(), one_.dtype, shape};
  }
  std::shared_ptr<Blob> release() { return std::move(blob_); }

 private:
  MemoryBudget& budget_;
  Device& device_;
  TensorView one_;  ///< dtype and shape of one value; the data is not read
  int64_t count_ = 0;
  std::shared_ptr<Blob> blob_;
};

/// Sizes that attribute "empty_sizes" of a Loop gives for its stacked value `number`; none if it gives none.
std::vector<int64_t> declared_sizes(const Attributes& attributes, size_t number) {
  const std::vector<int64_t> all = attributes.integers("empty_sizes");
  for (size_t at = 0; at < all.size(); --number) {
    const size_t rank = static_cast<size_t>(std::max<int64_t>(all[at], 0)), first = at + 1;
    if (rank > all.size() - first || rank >= static_cast<size_t>(Shape::max_rank)) return {};
    const auto sizes = all.begin() + static_cast<std::ptrdiff_t>(first);
    if (number == 0) return {sizes, sizes + static_cast<std::ptrdiff_t>(rank)};
    at = first + rank;
  }
  return {};
}

}  // namespace

Executor& Executor::body(size_t index, size_t which) {
  const Instruction& instruction = program_->instructions[index];
  auto& bodies = bodies_[index];
  bodies.resize(instruction.bodies.size());
  if (!bodies[which]) {
    bodies[which] = std::make_unique<Executor>(instruction.bodies[which], store_, pool_, budget_);
    bodies[which]->capturable_ = false;  // its operands are not staged: each run may have them at other addresses
  }
  bodies[which]->strings_ = strings_;
  bodies[which]->iteration_ = iteration_;
  return *bodies[which];
}

/// The scalar of a control operand: one integer or bool, of any rank.
int64_t Executor::single(const Instruction& instruction, size_t input) const {
  if (in_[input].elements() != 1)
    throw Error(Code::invalid_argument, cat(instruction.origin, ": operand ", input, " has shape ",
                                            in_[input].shape.text(), ", expected one element"));
  return to_ints(device_.fetch(in_[input]).view())[0];
}

TensorView Executor::copy(const TensorView& from, BufferId id) {
  auto blob = budget_->take(from.bytes(), device_);
  device_.copy(queue_, blob->mutable_data(), from.data, from.bytes());
  unsized_[static_cast<size_t>(id)] = std::move(blob);
  return {unsized_[static_cast<size_t>(id)]->mutable_data(), from.dtype, from.shape};
}

/// Whether output `index` aliases an input.
bool Executor::hands_through(int index) const {
  const Buffer* buffer = &program_->buffers[static_cast<size_t>(program_->outputs[static_cast<size_t>(index)])];
  if (buffer->place == Buffer::Place::view) buffer = &program_->buffers[static_cast<size_t>(buffer->index)];
  return buffer->place == Buffer::Place::input;
}

/// Ends with the faults of what was launched so far: a body's launches report to its own run.
void Executor::settle() {
  if (device_.shares_host_memory()) return;
  device_.finish(device_.record(queue_));
  check_fault();
}

void Executor::branch(size_t index) {
  settle();
  const Instruction& instruction = program_->instructions[index];
  Executor& taken = body(index, single(instruction, 0) != 0 ? 0 : 1);
  taken.run_on_device(std::span(in_).subspan(1));
  for (size_t k = 0; k < instruction.outputs.size(); ++k) {
    BufferId id = instruction.outputs[k];
    if (id < 0) continue;
    // Results live in the body's memory until it runs again; an operand's memory may be reused after this
    // instruction.
    TensorView made = taken.output_on_device(static_cast<int>(k));
    views_[static_cast<size_t>(id)] = taken.hands_through(static_cast<int>(k)) ? copy(made, id) : made;
  }
}

/// As in ONNX's reference implementation and ONNX Runtime, the body's condition ends the loop even if no initial
/// condition is given (the specification ignores it there; exporters return the one they got).
void Executor::loop(size_t index) {
  settle();
  const Instruction& instruction = program_->instructions[index];
  Executor& body = this->body(index, 0);
  const auto carried = static_cast<size_t>(instruction.carried), outputs = instruction.outputs.size();
  const int64_t most = in_[0].present() ? single(instruction, 0) : INT64_MAX;
  bool go = !in_[1].present() || single(instruction, 1) != 0;
  const bool reversed = instruction.attributes.integer("reversed", 0) != 0;
  int64_t iteration = 0;
  const uint8_t condition = 1;
  const std::shared_ptr<Blob> steering = budget_->take(2 * sizeof(int64_t), device_);
  std::byte* const number = steering->mutable_data();
  std::vector<TensorView> operands = in_;
  operands[0] = {number, DType::i64, {}};
  operands[1] = {number + sizeof(int64_t), DType::boolean, {}};
  device_.write(queue_, operands[1].data, &condition, sizeof condition);
  std::vector<Carried> values(carried, Carried(*budget_, device_));
  std::vector<Stack> stacks(outputs - carried, Stack(*budget_, device_));
  try {
    for (; iteration < most && go; ++iteration) {
      budget_->check();  // a body may have no instruction
      const int64_t told = reversed ? most - 1 - iteration : iteration;
      device_.write(queue_, number, &told, sizeof told);
      body.iteration_ = mixed_bits(iteration_, static_cast<uint64_t>(told) + 1);
      body.run_on_device(operands);
      TensorView verdict = body.output_on_device(0);
      if (verdict.elements() != 1)
        throw Error(Code::invalid_argument, cat("the condition has shape ", verdict.shape.text()));
      go = to_ints(device_.fetch(verdict).view())[0] != 0;
      for (size_t k = carried; k < outputs; ++k) {
        if (instruction.outputs[k] < 0) continue;
        try {
          stacks[k - carried].push(body.output_on_device(static_cast<int>(1 + k)));
        } catch (const Error& error) {
          throw error.at(cat("scanned output ", k));
        }
      }
      for (size_t k = 0; k < carried; ++k)
        operands[2 + k] = values[k].take(body.output_on_device(static_cast<int>(1 + k)), operands[2 + k]);
    }
    if (iteration == 0) body.bind(operands);  // for the shapes of values that were not computed
  } catch (const Error& error) {
    throw error.at(cat(instruction.origin, ", iteration ", iteration));
  }
  for (size_t k = 0; k < outputs; ++k) {
    BufferId id = instruction.outputs[k];
    if (id < 0) continue;
    TensorView& out = views_[static_cast<size_t>(id)];
    std::shared_ptr<Blob>& blob = unsized_[static_cast<size_t>(id)];
    if (k < carried) {
      out = operands[2 + k];
      if (auto own = values[k].release()) blob = std::move(own);
      else out = copy(out, id);  // the input's memory may be reused
    } else if (stacks[k - carried].empty()) {
      out = copy(body.none_of(static_cast<int>(1 + k), declared_sizes(instruction.attributes, k - carried)), id);
    } else {
      out = stacks[k - carried].view();
      blob = stacks[k - carried].release();
    }
  }
}

/// Output `index` of a loop without iterations: [0, ...], with the sizes known from the operands, otherwise those that
/// the file declares, and 0 for the others.
TensorView Executor::none_of(int index, std::span<const int64_t> declared) const {
  const Buffer& buffer = program_->buffers[static_cast<size_t>(program_->outputs[static_cast<size_t>(index)])];
  const bool ranked = buffer.sized || !buffer.dims.empty();
  if (ranked && declared.size() != buffer.dims.size()) declared = {};
  Shape shape{0};
  for (size_t axis = 0; axis < (ranked ? buffer.dims.size() : declared.size()); ++axis) {
    bool known = ranked;
    if (ranked)
      for (SymbolId id : buffer.dims[axis].symbols()) known = known && symbols_[static_cast<size_t>(id)] >= 0;
    shape.push_back(known ? buffer.dims[axis].evaluate(symbols_) : declared.empty() ? 0 : declared[axis]);
  }
  return {nullptr, buffer.dtype, shape};
}

}  // namespace plait

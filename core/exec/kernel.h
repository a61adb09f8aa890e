#pragma once
// What a kernel is: the one interface between the engine (core/exec, core/passes) and kernels/.
//
// A kernel computes one op for given dtypes. It sees contiguous local arrays, attributes, and a pool; it does not know
// graphs, ranks or requests. It never throws, prints, or allocates more than its scratch: the shapes were checked
// before the program ran, and what only the data can show (an index out of range, a NaN that must be refused) comes
// back as a status.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/tensor.h"
#include "core/base/thread_pool.h"

namespace plait {

enum class KernelCode : int32_t { ok = 0, index_out_of_range, not_a_number, division_by_zero, bad_value };

/// `operand` is the position among the inputs of the operand at fault, `value` the offending index or element where there
/// is one. The executor turns it into an Error that names the node.
struct KernelStatus {
  KernelCode code = KernelCode::ok;
  int32_t operand = 0;
  int64_t value = 0;
};

/// The first status other than ok of a run, and the instruction it came from. A kernel of the processor returns its status; one
/// of an accelerator returns before it has run, and its device fills this in.
struct Fault {
  KernelStatus status;
  int32_t instruction = -1;

  bool found() const { return status.code != KernelCode::ok; }
};

/// What runs a kernel.
enum class DeviceKind : uint8_t { host, cuda };
class Queue;

/// What is known about a node when kernels are chosen: before any shape is a number. Absent operands have
/// DType::none. `rank` is -1 where it is unknown.
struct OperandInfo {
  DType dtype = DType::none;
  int rank = -1;
  bool constant = false;  ///< a weight that nothing writes: Kernel::pack may ask for another layout
};
struct NodeInfo {
  std::string_view op;
  const Attributes& attributes;
  std::span<const OperandInfo> inputs;
  std::span<const OperandInfo> outputs;
};

/// Which elements of an axis this kernel's operand holds: those from `offset` on, of `whole` in all (0: it holds all of
/// them). Of the "@" factor of the op's dims rule, from the attributes of a node that shares an axis with other ranks.
struct ShardedAxis {
  int64_t offset = 0, whole = 0;

  static ShardedAxis of(const Attributes& attributes) {
    return {attributes.integer("offset", 0), attributes.integer("whole", 0)};
  }
  /// Whether the index is one of the axis, of which `held` are here.
  bool contains(int64_t index, int64_t held) const { return index >= 0 && index < (whole ? whole : held); }
  /// Where it is among those that are here; -1 if another rank has it.
  int64_t place(int64_t index, int64_t held) const {
    return index >= offset && index < offset + held ? index - offset : -1;
  }
};

/// Attributes in the form the kernel wants: parsed once per node, shared by all runs, immutable.
struct KernelState {
  virtual ~KernelState() = default;
};

struct KernelCall {
  const KernelState* state;             ///< what `prepare` returned, or null
  std::span<const TensorView> inputs;   ///< absent operands: dtype none, data null
  std::span<const TensorView> outputs;  ///< shapes are final; an absent output has dtype none. May alias an input
                                        ///< only where the kernel says `in_place`
  ThreadPool& pool;
  std::span<std::byte> scratch;  ///< 64-byte aligned, of the size that `scratch_bytes` asked for; not zeroed
  Queue* queue = nullptr;        ///< where a kernel of an accelerator puts its work
  Fault* fault = nullptr;        ///< host memory; null: nobody asks
  int32_t instruction = -1;      ///< for `fault`
};

/// A layout of a constant operand other than the file's, of the same elements. The packed array keeps dtype and shape as
/// its view; its blob may be longer.
struct PackedLayout {
  std::string_view name;  ///< part of the array's key in the Store: equal names are equal layouts
  /// The array in this layout. `plain` is contiguous and row-major, in host memory, and so is the result.
  Tensor (*pack)(const Tensor& plain, ThreadPool* pool);
};

struct Kernel {
  std::string op;      ///< the schema's name: "Add", "plait.Linear"
  std::string isa;     ///< "reference", "avx2", "avx512", "amx": what PLAIT_ISA names
  DeviceKind device = DeviceKind::host;
  int priority = 0;    ///< the highest that accepts the node wins; reference kernels are 0
  std::string dtypes;  ///< one word for the table that `plait ops` prints: "f32", "f32 x bf16"

  /// Whether the kernel can run the node. Null: always.
  bool (*accepts)(const NodeInfo& node) = nullptr;
  /// Parses attributes. Null: nothing to parse. May throw Error on attribute values it cannot honour (this is called
  /// while compiling, not while running).
  std::shared_ptr<const KernelState> (*prepare)(const NodeInfo& node) = nullptr;
  /// Bytes of scratch for a call of these shapes with a pool of `threads`. Null: none.
  int64_t (*scratch_bytes)(const KernelState* state, std::span<const TensorView> inputs,
                           std::span<const TensorView> outputs, int threads) = nullptr;
  KernelStatus (*run)(const KernelCall& call) = nullptr;

  /// The layout in which it reads constant input `operand`; null: as the file has it. Null function: all are.
  const PackedLayout* (*pack)(const NodeInfo& node, size_t operand) = nullptr;

  /// The shape of output `output` of an op whose sizes depend on the data of its operands (NonZero, Compress, Unique):
  /// the executor asks before it makes the outputs. Null: the shapes follow from shapes.
  Shape (*output_shape)(const KernelState* state, std::span<const TensorView> inputs, int output) = nullptr;

  /// Input whose memory output 0 may take over (elementwise ops), -1: none.
  int in_place = -1;
};

/// All kernels there are. Filled by explicit calls (register_reference_kernels, register_cpu_kernels), then constant:
/// thread-safe to read.
class KernelTable {
 public:
  void add(Kernel kernel);
  /// The device's kernel of the highest priority that accepts the node, or null.
  const Kernel* find(const NodeInfo& node, DeviceKind device = DeviceKind::host) const;
  /// The reference kernel of the node, or null.
  const Kernel* reference(const NodeInfo& node) const;
  const std::vector<std::unique_ptr<Kernel>>& all() const { return kernels_; }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;  ///< by falling priority
};

}  // namespace plait

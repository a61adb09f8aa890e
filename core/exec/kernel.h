#pragma once
// The kernel interface: the only one between the engine (core/exec, core/passes) and kernels/.
//
// A kernel computes one op for given dtypes. It gets contiguous local arrays, attributes, and a thread pool; it has
// no access to graphs, ranks or requests. It never throws, prints, or allocates beyond its scratch: shapes are
// checked before the program runs, and data-dependent faults (index out of range, a forbidden NaN) are returned as a
// status. Only kernels of strings may throw Error: for texts that are at fault, and for the memory of the run's table.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/strings.h"
#include "core/base/tensor.h"
#include "core/base/thread_pool.h"

namespace plait {

enum class KernelCode : int32_t { ok = 0, index_out_of_range, not_a_number, division_by_zero, bad_value };

/// `operand`: the input at fault; `value`: the offending index or element, if any. The executor turns a status into
/// an Error that names the node.
struct KernelStatus {
  KernelCode code = KernelCode::ok;
  int32_t operand = 0;
  int64_t value = 0;
};

/// The first failed status of a run, and its instruction. A host kernel returns its status; an accelerator kernel
/// returns before it has run, so its device fills this in.
struct Fault {
  KernelStatus status;
  int32_t instruction = -1;

  bool found() const { return status.code != KernelCode::ok; }
};

/// The device that runs a kernel.
enum class DeviceKind : uint8_t { host, cuda };
class Queue;

/// What kernel selection sees of an operand, before shapes are numbers. Absent operands have DType::none. `rank`: -1
/// if unknown.
struct OperandInfo {
  DType dtype = DType::none;
  int rank = -1;
  bool constant = false;  ///< a read-only weight; Kernel::pack may choose another layout
};
struct NodeInfo {
  std::string_view op;
  const Attributes& attributes;
  std::span<const OperandInfo> inputs;
  std::span<const OperandInfo> outputs;
};

/// The shard of an axis that this kernel's operand holds: elements from `offset` on, of `whole` in total (0: all).
/// Taken from the node's attributes; the axis is the "@" factor of the op's dims rule.
struct ShardedAxis {
  int64_t offset = 0, whole = 0;

  static ShardedAxis of(const Attributes& attributes) {
    return {attributes.integer("offset", 0), attributes.integer("whole", 0)};
  }
  /// Whether the index is within the axis, of which this rank holds `held`.
  bool contains(int64_t index, int64_t held) const { return index >= 0 && index < (whole ? whole : held); }
  /// The local index; -1 if another rank holds it.
  int64_t place(int64_t index, int64_t held) const {
    return index >= offset && index < offset + held ? index - offset : -1;
  }
};

/// Attributes parsed for the kernel: once per node, shared by all runs, immutable.
struct KernelState {
  virtual ~KernelState() = default;
};

struct KernelCall {
  const KernelState* state;             ///< what `prepare` returned, or null
  std::span<const TensorView> inputs;   ///< absent operands: dtype none, data null
  std::span<const TensorView> outputs;  ///< shapes are final; an absent output has dtype none. May alias an input
                                        ///< only where the kernel has `in_place`
  ThreadPool& pool;
  std::span<std::byte> scratch;  ///< 64-byte aligned, of `scratch_bytes` bytes; not zeroed
  Queue* queue = nullptr;        ///< accelerators: the queue to launch in
  Fault* fault = nullptr;        ///< host memory; null: not needed
  int32_t instruction = -1;      ///< for `fault`
  StringTable* strings = nullptr;  ///< of the run, for operands of strings, which are numbered; null where a program has none
  uint64_t iteration = 0;          ///< 0 outside of loops; otherwise another number in each iteration of each of them
};

/// A packed layout of a constant operand. The packed array's view keeps dtype and shape; its blob may be longer.
struct PackedLayout {
  std::string_view name;  ///< part of the array's key in the Store: equal names are equal layouts
  /// Packs `plain`. Both arrays are contiguous host memory; `plain` is row-major.
  Tensor (*pack)(const Tensor& plain, ThreadPool* pool);
};

struct Kernel {
  std::string op;      ///< schema name: "Add", "plait.Linear"
  std::string isa;     ///< "reference", "avx2", "avx512", "amx": what PLAIT_ISA names
  DeviceKind device = DeviceKind::host;
  int priority = 0;    ///< the highest that accepts the node is chosen; reference kernels have 0
  std::string dtypes;  ///< for the table of `plait ops`: "f32", "f32 x bf16"

  /// Whether the kernel supports the node. Null: always.
  bool (*accepts)(const NodeInfo& node) = nullptr;
  /// Parses attributes at compile time. Null: nothing to parse. May throw Error on unsupported attribute values.
  std::shared_ptr<const KernelState> (*prepare)(const NodeInfo& node) = nullptr;
  /// Bytes of scratch for a call of these shapes with a pool of `threads`. Null: none.
  int64_t (*scratch_bytes)(const KernelState* state, std::span<const TensorView> inputs,
                           std::span<const TensorView> outputs, int threads) = nullptr;
  KernelStatus (*run)(const KernelCall& call) = nullptr;

  /// The layout expected of constant input `operand`; null: plain. Null function: all plain.
  const PackedLayout* (*pack)(const NodeInfo& node, size_t operand) = nullptr;

  /// The shape of output `output` of an op with data-dependent sizes (NonZero, Compress, Unique); called before the
  /// outputs are allocated. Null: shapes follow from shapes.
  Shape (*output_shape)(const KernelState* state, std::span<const TensorView> inputs, int output) = nullptr;

  /// Bit i: operand i is not read, since the outputs' sizes tell what it specifies (Expand's shape). A device that computes no sizes
  /// then needs no copy of it.
  uint32_t unread = 0;

  /// Index of the input whose memory output 0 may reuse (elementwise ops); -1 if none.
  int in_place = -1;
};

/// The registry of kernels. Filled by explicit calls (register_reference_kernels, register_cpu_kernels), then
/// constant and thread-safe to read.
class KernelTable {
 public:
  void add(Kernel kernel);
  /// The device's kernel of the highest priority that accepts the node, or null.
  const Kernel* find(const NodeInfo& node, DeviceKind device = DeviceKind::host) const;
  /// The reference kernel of the node, or null.
  const Kernel* reference(const NodeInfo& node) const;
  const std::vector<std::unique_ptr<Kernel>>& all() const { return kernels_; }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;  ///< by descending priority
};

}  // namespace plait

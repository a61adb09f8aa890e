#pragma once
// The Program: a flat instruction list for one rank. Made from a Graph by core/passes (lower, plan), with no
// references to it. Immutable once made, so executors may share one.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/collective.h"
#include "core/base/constant.h"
#include "core/base/dim.h"
#include "core/comm/communicator.h"
#include "core/exec/kernel.h"

namespace plait {

/// Index into Program::buffers; -1 for an absent optional operand.
using BufferId = int32_t;

/// One value of the program.
struct Buffer {
  enum class Place {
    arena,  ///< live from the defining instruction to its last reader, at an arena offset
    input,  ///< memory of the caller; `index` is the number of the input
    store,  ///< a persistent entry; `index` is the number of the entry
    view,   ///< the same bytes as buffer `index` under another shape
    slot,   ///< memory of the caller that outlives the run; `index` is the number of the slot
  };
  Place place = Place::arena;
  int32_t index = 0;
  DType dtype = DType::none;
  /// Whether `dims` give the size before the run. Otherwise the size depends on data and is found when the value is
  /// computed; `dims` may still contain known sizes.
  bool sized = true;
  Dims dims;
  int32_t born = 0, dies = 0;  ///< live range of an arena buffer, inclusive, in instructions
  int64_t offset = -1;         ///< in the arena planned for the symbols' bounds; -1 if unplanned
};

/// How long a slot's value is kept, when a micro-batch of a pipeline stage runs in sections (core/passes/stage/split.h): from
/// the section that makes or receives it to the last one that reads it.
enum class SlotPool : int32_t {
  action,            ///< within one section: what it receives
  forward_to_input,  ///< from the forward pass to input gradients, or to the whole backward pass
  forward_to_weight,
  input_to_weight,
};
constexpr int32_t slot_pools = 4;

/// A value that is kept from one program to a later one.
struct Slot {
  SlotPool pool = SlotPool::action;
  DType dtype = DType::none;
  Dims dims;
};

struct Program;

/// One collective of a group: input 0 becomes output 0.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Reduction reduction = Reduction::sum;
  int32_t group = -1;  ///< index into Program::groups
  int32_t dim = 0, to_dim = 0;
  int32_t parts = 1, part = 0;  ///< size of the group, this rank's index in it
  bool async = false;           ///< may overlap later instructions up to `Instruction::wait_before`

  /// Workspace bytes for blocks in rank order, where blocks along `dim` are not contiguous.
  int64_t workspace_bytes(const TensorView& in, const TensorView& out) const;
};

struct Instruction {
  enum class Kind {
    compute,  ///< kernel
    sizes,    ///< writes `sizes` as i64 into output 0
    branch,   ///< ONNX's If: input 0 picks bodies[0] (true) or bodies[1]; the other inputs are theirs
    /// ONNX's Loop: input 0 is the most iterations (absent: no limit), input 1 whether to begin (absent: yes), then
    /// `carried` values and what bodies[0] captures. The body takes (iteration, condition, the rest) and returns
    /// (condition, carried values, scanned values); the outputs are the last carried values, then the scanned ones
    /// of all iterations, stacked along a new first dimension.
    loop,
    /// `call`. With a kernel (pass lower, join_sums): of the sum of all ranks, which takes the place of input `call.dim` when the kernel
    /// runs; that input is this rank's part.
    collective,
  };
  Kind kind = Kind::compute;
  const Kernel* kernel = nullptr;
  std::shared_ptr<const KernelState> state;
  std::vector<BufferId> inputs, outputs;
  Dims sizes;
  /// Infers dtypes and shapes of the outputs from the actual inputs. Set where an output is not `sized`, and where
  /// the graph assumes equal sizes that only fitting model inputs guarantee: `sized` outputs must then match the
  /// program. The elements of operands of at most `inferred_bytes` are there to be read; data of others may be null. `read` becomes
  /// whether the result depends on the elements of each operand, and not only on its type.
  std::function<void(std::span<const TensorView> inputs, std::vector<std::pair<DType, Shape>>& outputs, std::vector<bool>& read)>
      infer;
  static constexpr int64_t inferred_bytes = 8192;
  std::vector<std::shared_ptr<const Program>> bodies;
  int32_t carried = 0;  ///< loops only
  CollectiveCall call;  ///< collectives only
  /// Kernels of a device (pass lower, join_sums): the group whose next collective is the all-reduce by sum of output 0, which nothing
  /// else writes before; -1: none.
  int32_t begins_sum = -1;
  /// Asynchronous collectives: the first instruction that reads the output or overwrites an operand, up to which the
  /// buffers stay live; -1 if synchronous.
  int32_t wait_before = -1;
  BufferId workspace = -1;  ///< asynchronous collectives: of `workspace_bytes`
  Attributes attributes;    ///< the node's, from which `state` was made; for the fingerprint
  std::string origin;       ///< the source node, for messages
};

/// A persistent array: a weight (made from `source` when the Store loads) or, without a source, zeroed state such as
/// KV cache pages.
struct StoreEntry {
  std::string key;  ///< equal keys share one array
  DType dtype = DType::none;
  Dims dims;
  std::shared_ptr<const Constant> source;
  const PackedLayout* layout = nullptr;  ///< the packed layout of a weight; null: plain
  bool written = false;  ///< instructions write it: never a mapped file or another rank's memory
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<StoreEntry> entries;
  std::vector<Slot> slots;  ///< equal in all programs that share them
  SymbolTable symbols;
  /// The process groups of this rank's collectives: world ranks in block order. All ranks have equally many, in the
  /// same order.
  std::vector<std::vector<int32_t>> groups;
  std::vector<BufferId> inputs, outputs;
  std::vector<std::string> input_names, output_names;
  std::vector<int> input_lists, output_lists;  ///< how deep the lists of each are (core/base/packed_list.h): 0, a tensor
  bool has_strings = false;                    ///< some buffer is of strings, here or in a body
  bool bounded = false;     ///< every arena buffer is bounded: `offset`s are valid, the arena never grows
  int64_t arena_bytes = 0;  ///< at the bounds
  /// Equal for equal compilations: across the ranks of a mesh and across runs. Weights count by name, dtype and
  /// steps, computed constants by their bytes.
  std::string fingerprint;
  std::string refusal;  ///< why it cannot run, "" if it can; such a branch may never be taken
};

/// Bytes of a set of slots at the bounds of the program's symbols, so that it serves any run; 0 if one has no bound.
int64_t planned_slot_bytes(const Program& program, SlotPool pool);

/// Assigns arena offsets so that buffers live at the same time do not overlap: greedy by size, best fit. `sizes[i]`
/// bytes are live from born[i] to dies[i]. Returns the arena's size; offsets are multiples of 64.
int64_t plan_offsets(std::span<const int64_t> sizes, std::span<const int32_t> born, std::span<const int32_t> dies,
                     std::span<int64_t> offsets);

}  // namespace plait

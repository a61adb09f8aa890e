#pragma once
// The Program: what one rank runs, a flat list. Made by core/passes (lower, plan) from a Graph; nothing in it refers
// to the graph any more. Immutable once made, so any number of executors may share one.
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
    arena,  ///< lives from the instruction that makes it to its last reader, at an offset of the arena
    input,  ///< memory of the caller; `index` is the number of the input
    store,  ///< a persistent entry; `index` is the number of the entry
    view,   ///< the same bytes as buffer `index` under another shape
  };
  Place place = Place::arena;
  int32_t index = 0;
  DType dtype = DType::none;
  /// Whether `dims` say the size before the run. If not, the size depends on data and is found as the value is made;
  /// `dims` may still say some of its sizes.
  bool sized = true;
  Dims dims;
  int32_t born = 0, dies = 0;  ///< instructions between which an arena buffer's bytes are in use, both included
  int64_t offset = -1;         ///< in the arena planned for the symbols' bounds; -1 if there is none
};

struct Program;

/// What the ranks of a group do together: input 0 becomes output 0.
struct CollectiveCall {
  enum class Kind : uint8_t {
    all_reduce,
    reduce_scatter,  ///< of the sum (max, min) each rank gets its block of `dim`
    all_gather,      ///< the ranks' blocks of `dim`, in their order
    all_to_all,      ///< the same, of which each rank gets its block of `to_dim`
    shard            ///< the rank's block of `dim`, which all have whole: says nothing to anyone
  };
  Kind kind = Kind::all_reduce;
  Reduction reduction = Reduction::sum;
  int32_t group = -1;  ///< of Program::groups
  int32_t dim = 0, to_dim = 0;
  int32_t parts = 1, part = 0;  ///< how many ranks the group has, and which of them this is
  bool async = false;           ///< it may run while later instructions do, until `Instruction::wait_before`

  /// Bytes of workspace for blocks in the order of ranks, where blocks along `dim` are not contiguous.
  int64_t workspace_bytes(const TensorView& in, const TensorView& out) const;
};
std::string_view kind_name(CollectiveCall::Kind kind);

struct Instruction {
  enum class Kind {
    compute,  ///< kernel
    sizes,    ///< writes the values of `sizes` as i64 into output 0
    branch,   ///< ONNX's If: input 0 picks bodies[0] (true) or bodies[1]; the other inputs are theirs
    /// ONNX's Loop: input 0 is the most iterations (absent: no limit), input 1 whether to begin (absent: yes), then
    /// `carried` values and what bodies[0] captures. The body takes (iteration, condition, the rest) and returns
    /// (condition, carried values, scanned values); the outputs are the last carried values, then the scanned ones
    /// of all iterations, stacked along a new first dimension.
    loop,
    collective,  ///< `call`
  };
  Kind kind = Kind::compute;
  const Kernel* kernel = nullptr;
  std::shared_ptr<const KernelState> state;
  std::vector<BufferId> inputs, outputs;
  Dims sizes;
  /// Dtypes and shapes of the outputs from the inputs at hand. Where an output is not `sized`; and where the graph takes
  /// sizes of operands for equal that are so only if the model's inputs fit each other: outputs that are sized must then
  /// turn out as the program says.
  std::function<void(std::span<const TensorView> inputs, std::vector<std::pair<DType, Shape>>& outputs)> infer;
  std::vector<std::shared_ptr<const Program>> bodies;
  int32_t carried = 0;  ///< of a loop
  CollectiveCall call;  ///< of a collective
  /// Of an asynchronous collective: the first instruction that reads its output or overwrites an operand; -1 if it is
  /// synchronous. Buffers that it touches are in use until then.
  int32_t wait_before = -1;
  BufferId workspace = -1;  ///< of an asynchronous collective: its `workspace_bytes`
  Attributes attributes;    ///< of the node: what `state` was made from, for the fingerprint
  std::string origin;       ///< for messages: the node it came from
};

/// A persistent array: a weight (made from `source` while the Store loads) or, without a source, zeroed state such as
/// the pages of a KV cache.
struct StoreEntry {
  std::string key;  ///< equal keys are the same array
  DType dtype = DType::none;
  Dims dims;
  std::shared_ptr<const Constant> source;
  const PackedLayout* layout = nullptr;  ///< of a weight: what its kernel reads; null: as `source` has it
  bool written = false;  ///< by instructions: never the file's own memory, nor another rank's
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<StoreEntry> entries;
  SymbolTable symbols;
  /// The groups of ranks that collectives name, this rank among them: world ranks in the order of their blocks. All ranks
  /// have as many, in the same order.
  std::vector<std::vector<int32_t>> groups;
  std::vector<BufferId> inputs, outputs;
  std::vector<std::string> input_names, output_names;
  bool bounded = false;     ///< every arena buffer has a bound: `offset`s are valid and the arena never grows
  int64_t arena_bytes = 0;  ///< at the bounds
  /// Equal where the same thing was compiled: on the ranks of a mesh, whatever their parts of it are, and from run to run.
  /// Weights count by name, type and steps, what was computed while compiling by its bytes.
  std::string fingerprint;
  std::string refusal;  ///< why it cannot run; "": it can. A branch that is never taken may be such a one
};

/// Offsets for intervals of memory that may overlap in time only where they are apart in space: greedy by size, best
/// fit. `sizes[i]` bytes are in use from born[i] to dies[i]. Returns the arena's size; offsets are multiples of 64.
int64_t plan_offsets(std::span<const int64_t> sizes, std::span<const int32_t> born, std::span<const int32_t> dies,
                     std::span<int64_t> offsets);

}  // namespace plait

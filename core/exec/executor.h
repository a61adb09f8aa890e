#pragma once
// The Executor runs a Program. It is independent of tensor parallelism, training and generation.
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/exec/program.h"
#include "core/exec/memory_budget.h"
#include "core/exec/store.h"

namespace plait {

/// Seconds and calls per op, summed over runs. An asynchronous collective counts only while the run waits for it.
struct ProfileRow {
  double seconds = 0;
  int64_t calls = 0;
  double waited = 0;  ///< part of `seconds` spent waiting for other ranks
};
using Profile = std::map<std::string, ProfileRow>;

/// Seconds on the machine's monotonic clock.
double monotonic_s();

/// One timed interval, in `monotonic_s` seconds.
struct TraceEvent {
  std::string_view name;  ///< op, collective, or "control"; lives as long as the kernel table
  double begin = 0, end = 0;
  double waited = 0;  ///< part of it spent waiting for other ranks
  bool collective = false;
  bool async = false;  ///< overlapped with later instructions
};

/// Runs on the store's device, one run at a time; owns the memory of its run. Executors may share a program, a
/// store's read-only arrays, and (one run at a time) a pool.
class Executor {
 public:
  /// All entries of the program must be in the store. `room`: budget of the other memory of the run; null: a default
  /// budget. `groups`: communicators of the program's groups, in program order; they outlive the executor. All ranks
  /// of a group run such a program together. It cannot be cancelled, since the others would wait; after a run that
  /// throws they wait until the world is aborted.
  /// `arena`: device memory shared by executors that never run at once: outputs are valid until one of them runs.
  /// Unused if too small.
  Executor(std::shared_ptr<const Program> program, const Store& store, ThreadPool& pool,
           std::shared_ptr<MemoryBudget> budget = nullptr, std::vector<Communicator*> groups = {},
           std::shared_ptr<Blob> arena = nullptr);
  ~Executor();

  /// Checks dtypes and shapes of the inputs without running; throws as `run`.
  void bind(std::span<const TensorView> inputs);
  /// Runs the program. `inputs`: host arrays in program order, strings packed (core/base/strings.h, checked by the caller); their
  /// shapes bind the symbols. Throws
  /// Error(invalid_argument) naming an input whose shape does not fit; an Error naming the node for a kernel's fault;
  /// Error(out_of_memory) beyond `room`, naming the node if the size depends on data; Error(cancelled).
  void run(std::span<const TensorView> inputs);

  /// An output in host memory, valid until the next run; strings are numbered.
  TensorView output(int index) const;
  /// A copy, with strings packed.
  Tensor copy_of_output(int index) const;
  /// The same on the device.
  TensorView output_on_device(int index) const;

  /// Reads and writes these arrays in place of the Store's arrays of the same keys, which have their types, in later runs; the
  /// Store's own again where a key is missing. For arrays that programs write.
  void use(const std::map<std::string, Tensor, std::less<>>& arrays);

  // Slots: device memory that outlives a run, given by the caller. Sizes follow from the symbols that `bind` or `run` bound.
  /// Bytes of the slots of a pool, laid out in order at multiples of 64; 0 if the program uses none of them.
  int64_t slot_bytes(SlotPool pool) const;
  /// Memory of each pool, by number; null for pools that the program does not use. Holds for later runs.
  void set_slots(std::span<std::byte* const> pools);
  /// On the device, in the memory that was set.
  TensorView slot(int32_t index) const;

  const Program& program() const { return *program_; }
  /// Current bytes of arena and scratch.
  int64_t bytes() const;
  /// Enables or disables profiling; `profile` keeps accumulated results.
  void set_profiling(bool on) { profiling_ = on; }
  const Profile& profile() const { return profile_; }
  /// Appends an event per instruction to `events`, up to a million in all; null: off.
  void set_trace(std::vector<TraceEvent>* events) { trace_ = events; }
  /// Searches runs for the first NaN (and an infinity before it) computed from finite operands and writes the nodes
  /// that made it to `origin`. Costs a pass over every result. Null: off.
  void set_watch(std::string* origin) { watch_ = origin; }

 private:
  void run_on_device(std::span<const TensorView> inputs);
  void place_slots();
  void forget_strings();
  std::span<const TensorView> numbered(std::span<const TensorView> inputs);
  std::span<const TensorView> stage(std::span<const TensorView> inputs);
  std::span<const TensorView> small_on_host(std::span<const TensorView> views, bool all);
  bool bind_symbols(std::span<const TensorView> inputs);
  void bind_symbol(const Dim& dim, int64_t size, int input, int axis);
  void size_buffers();
  void plan_arena(std::span<const int64_t> bytes);
  bool capturable() const;
  bool replay();
  void forget_launches();
  void execute_all();
  void execute(size_t index);
  void execute_measured(size_t index);
  void watch(const Instruction& instruction);
  void compute(const Instruction& instruction);
  void write_sizes(const Instruction& instruction);
  void collective(size_t index);
  void wait_before(int32_t next);
  void abandon() noexcept;
  void add_event(const TraceEvent& event);
  std::span<std::byte> scratch(int64_t bytes);
  Executor& body(size_t index, size_t which);
  int64_t single(const Instruction& instruction, size_t input) const;
  TensorView copy(const TensorView& from, BufferId id);
  bool hands_through(int index) const;
  void settle();
  void branch(size_t index);
  void loop(size_t index);
  TensorView none_of(int index, std::span<const int64_t> declared) const;
  void gather_operands(const Instruction& instruction);
  void infer_outputs(const Instruction& instruction);
  const std::vector<std::pair<DType, Shape>>& types_of_outputs(const Instruction& instruction);
  std::shared_ptr<Blob> take_unsized(int64_t bytes);
  void give_back(std::shared_ptr<Blob>& memory);
  void release_unsized(int32_t index);
  void check_fault() const;
  [[noreturn]] void fail(const Instruction& instruction, const KernelStatus& status) const;

  std::shared_ptr<const Program> program_;
  const Store& store_;
  Device& device_;
  Queue& queue_;  ///< the device's compute queue
  ThreadPool& pool_;
  std::shared_ptr<MemoryBudget> budget_;
  std::vector<Communicator*> groups_;
  std::vector<Tensor> entries_;                 ///< the program's store entries
  std::vector<const Blob*> blobs_;              ///< theirs, each once
  std::vector<TensorView> views_;               ///< by buffer, for the present symbol values
  std::vector<std::shared_ptr<Blob>> unsized_;  ///< memory of buffers whose size depends on data
  std::vector<std::shared_ptr<Blob>> spare_;    ///< such memory without a value, for the next ones
  /// Types of an instruction's outputs, and the operands for which they hold.
  struct InferredTypes {
    bool known = false;
    std::vector<std::pair<DType, Shape>> operands, outputs;
    std::vector<std::vector<std::byte>> elements;  ///< by operand, of those whose elements matter
    bool hold(std::span<const TensorView> inputs) const;
  };
  std::vector<InferredTypes> inferred_;         ///< by instruction
  std::vector<int64_t> symbols_;                ///< values, -1 where unbound
  bool sized_ = false;                          ///< `views_` match `symbols_`
  std::vector<int64_t> slot_offsets_;           ///< by slot, within its pool
  std::array<int64_t, slot_pools> slot_bytes_{};
  std::array<std::byte*, slot_pools> slot_memory_{};
  std::vector<size_t> slot_buffers_;     ///< buffers that are slots
  std::vector<size_t> written_buffers_;  ///< buffers of Store entries that programs write
  std::vector<int64_t> offsets_, capacities_;   ///< by buffer; if the program is not `bounded`
  std::shared_ptr<Blob> arena_, scratch_;
  /// Launches of a run with these symbol values, at the addresses of the present arena, inputs, scratch and slots.
  struct CapturedRun {
    std::vector<int64_t> symbols;
    int64_t last_use = 0;
    std::unique_ptr<Captured> launches;  ///< null: not recorded yet
  };
  bool capturable_ = false;
  std::vector<CapturedRun> captured_;
  int64_t uses_ = 0;
  std::vector<TensorView> in_, out_;                            ///< operands of the current instruction
  Fault fault_;
  std::shared_ptr<Blob> inputs_;          ///< device memory of all inputs of a run; unused if memory is shared
  std::vector<std::byte> staged_bytes_;   ///< host copy of `inputs_`
  std::vector<TensorView> staged_;        ///< views of `inputs_`
  std::shared_ptr<StringTable> strings_;  ///< of the run; null without strings. A body has its caller's
  std::vector<Tensor> numbered_;          ///< inputs of strings
  std::vector<TensorView> numbered_views_;
  uint64_t iteration_ = 0;                ///< KernelCall::iteration
  std::vector<Tensor> on_host_;           ///< copies that back the views from `small_on_host`
  std::vector<TensorView> on_host_views_;
  mutable std::vector<Tensor> fetched_;   ///< outputs, by index
  std::vector<std::vector<std::unique_ptr<Executor>>> bodies_;  ///< by instruction; made on first use
  /// An asynchronous collective, or one queued after such.
  struct PendingCollective {
    QueueEvent end;
    int32_t wait_before = 0;  ///< the instruction that must wait for it
    TraceEvent trace;
  };
  static constexpr int32_t never = std::numeric_limits<int32_t>::max();
  std::deque<PendingCollective> pending_;  ///< in program order
  int32_t due_ = never;                    ///< the smallest `wait_before` of `pending_`
  bool profiling_ = false;
  Profile profile_;
  std::vector<TraceEvent>* trace_ = nullptr;
  std::string* watch_ = nullptr;
  bool watched_nan_ = false;  ///< `watch_` reports a NaN
};

}  // namespace plait

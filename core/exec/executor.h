#pragma once
// The Executor runs a Program. It does not know what tensor parallelism, training or generation are.
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

/// Seconds and calls per op, summed over runs. An asynchronous collective counts only for the time that the run waits for it.
struct ProfileRow {
  double seconds = 0;
  int64_t calls = 0;
  double waited = 0;  ///< of the seconds: for other ranks
};
using Profile = std::map<std::string, ProfileRow>;

/// Seconds of the machine's monotonic clock.
double monotonic_s();

/// What was done when, by `monotonic_s`.
struct TraceEvent {
  std::string_view name;  ///< a kernel's op, a collective, or "control": lives as long as the kernel table
  double begin = 0, end = 0;
  double waited = 0;  ///< of that: for other ranks
  bool collective = false;
  bool async = false;  ///< the run went on meanwhile
};

/// Runs on the store's device. One run at a time: an executor owns the memory of its run. Several executors may share a
/// program, a store's read-only arrays, and, one run at a time, a pool.
class Executor {
 public:
  /// All entries of the program must be in the store. Other memory of the run is counted by `room`; null: by one of the
  /// default size. `groups`: communicators of the program's groups, in its order, which outlive the executor. All ranks of
  /// its groups run such a program at once, and it cannot be cancelled while it runs, since the others would wait; after a
  /// run that throws they wait until the world is aborted.
  /// `arena`: memory on the device that executors share which do not run at once: outputs are valid until one of them runs.
  /// Unused if it is too small.
  Executor(std::shared_ptr<const Program> program, const Store& store, ThreadPool& pool,
           std::shared_ptr<MemoryBudget> room = nullptr, std::vector<Communicator*> groups = {},
           std::shared_ptr<Blob> arena = nullptr);
  ~Executor();

  /// Throws what `run` would throw about these inputs' dtypes and shapes, without running.
  void bind(std::span<const TensorView> inputs);
  /// Runs the whole program. `inputs`: the host's arrays in the program's order; their shapes bind the symbols, and a shape
  /// that does not fit is Error(invalid_argument) naming the input. A kernel's refusal is an Error naming the node. Memory
  /// beyond `room` is Error(out_of_memory), naming the node where the size depends on data. Error(cancelled).
  void run(std::span<const TensorView> inputs);

  /// An output for the host to read, valid until the next run.
  TensorView output(int index) const;

  const Program& program() const { return *program_; }
  /// Bytes of the arena and scratch at present.
  int64_t bytes() const;
  /// Starts or stops measuring; the figures stay until `profile` is taken.
  void set_profiling(bool on) { profiling_ = on; }
  const Profile& profile() const { return profile_; }
  /// From now on each instruction adds to `events`, up to a million in all; null: no more.
  void set_trace(std::vector<TraceEvent>* events) { trace_ = events; }
  /// From now on runs look for the first NaN, and for an infinity before it, that is made of numbers which were none, and say
  /// in `origin` by which nodes. Takes a pass over all that is computed. Null: no more.
  void set_watch(std::string* origin) { watch_ = origin; }

 private:
  void run_on_device(std::span<const TensorView> inputs);
  TensorView output_on_device(int index) const;
  std::span<const TensorView> stage(std::span<const TensorView> inputs);
  std::span<const TensorView> small_on_host(std::span<const TensorView> views, bool all);
  bool bind_symbols(std::span<const TensorView> inputs);
  void bind_symbol(const Dim& dim, int64_t size, int input, int axis);
  void size_buffers();
  void plan_arena(std::span<const int64_t> bytes);
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
  void branch(size_t index);
  void loop(size_t index);
  TensorView none_of(int index) const;
  void gather_operands(const Instruction& instruction);
  void infer_outputs(const Instruction& instruction);
  void release_unsized(int32_t index);
  void check_fault() const;
  [[noreturn]] void fail(const Instruction& instruction, const KernelStatus& status) const;

  std::shared_ptr<const Program> program_;
  const Store& store_;
  Device& device_;
  Queue& queue_;  ///< the device's compute queue
  ThreadPool& pool_;
  std::shared_ptr<MemoryBudget> room_;
  std::vector<Communicator*> groups_;
  std::vector<Tensor> entries_;                 ///< the program's store entries
  std::vector<const Blob*> blobs_;              ///< theirs, each once
  std::vector<TensorView> views_;               ///< by buffer, for the present symbol values
  std::vector<std::shared_ptr<Blob>> unsized_;  ///< memory of buffers whose size depends on data
  std::vector<int64_t> symbols_;                ///< values, -1 where unbound
  bool sized_ = false;                          ///< whether `views_` are those of `symbols_`
  std::vector<int64_t> offsets_, capacities_;   ///< by buffer; where the program has no bounds
  std::shared_ptr<Blob> arena_, scratch_;
  std::vector<TensorView> in_, out_;                            ///< operands of the instruction at hand
  Fault fault_;
  std::shared_ptr<Blob> inputs_;          ///< on a device with memory of its own: all inputs of a run, in one block
  std::vector<std::byte> staged_bytes_;   ///< the same on the host
  std::vector<TensorView> staged_;        ///< views of `inputs_`
  std::vector<Tensor> on_host_;           ///< copies that `small_on_host` returned views of
  std::vector<TensorView> on_host_views_;
  mutable std::vector<Tensor> fetched_;   ///< outputs, by index
  std::vector<std::vector<std::unique_ptr<Executor>>> bodies_;  ///< by instruction; made when first taken
  /// An asynchronous collective, or one that queues after such.
  struct PendingCollective {
    QueueEvent end;
    int32_t wait_before = 0;  ///< the instruction before which it has to be done
    TraceEvent trace;
  };
  static constexpr int32_t never = std::numeric_limits<int32_t>::max();
  std::deque<PendingCollective> pending_;  ///< in program order
  int32_t due_ = never;                    ///< the least `wait_before` of them
  bool profiling_ = false;
  Profile profile_;
  std::vector<TraceEvent>* trace_ = nullptr;
  std::string* watch_ = nullptr;
  bool watched_nan_ = false;  ///< whether what `watch_` says is of a NaN
};

}  // namespace plait

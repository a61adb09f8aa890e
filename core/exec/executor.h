#pragma once
// The Executor runs a Program. It does not know what tensor parallelism, training or generation are.
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/exec/courier.h"
#include "core/exec/program.h"
#include "core/exec/run_room.h"
#include "core/exec/store.h"

namespace plait {

/// Seconds and calls per op, summed over runs. What goes on beside the run counts as long as the run stands still for it.
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
  bool beside = false;  ///< while the run went on
};

/// One at a time: an executor owns the memory of its run. Several executors may share a program, a store's read-only
/// arrays, and, one run at a time, a pool.
class Executor {
 public:
  /// All entries of the program must be in the store. What the run needs beside them is taken from `room`; none: from
  /// one of its own, of the default size. `groups`: those of the program, in its order, which outlive the executor. A
  /// program with groups is run by all their ranks at once, and cannot be cancelled while it runs, for the others would
  /// wait; a run that throws leaves them waiting until somebody aborts the world.
  /// `arena`: memory for what the program is planned for, which executors share that do not run at once: outputs are valid
  /// until one of them runs. Left alone where it is too small.
  Executor(std::shared_ptr<const Program> program, const Store& store, ThreadPool& pool,
           std::shared_ptr<RunRoom> room = nullptr, std::vector<Communicator*> groups = {},
           std::shared_ptr<Blob> arena = nullptr);
  ~Executor();

  /// What `run` does first: takes the inputs, and gives what follows from their sizes its place. Throws as `run` does, for inputs
  /// that cannot be.
  void bind(std::span<const TensorView> inputs);
  /// Runs the whole program. `inputs` in the program's order; their shapes bind the symbols, and a shape that does
  /// not fit is Error(invalid_argument) naming the input. A kernel's refusal is an Error naming the node. What the room
  /// has no place for is Error(out_of_memory), naming the node where data decides about the size. Error(cancelled).
  void run(std::span<const TensorView> inputs);

  /// Valid until the next run.
  TensorView output(int index) const;

  const Program& program() const { return *program_; }
  /// Bytes of the arena and scratch at present.
  int64_t bytes() const;
  /// Starts or stops measuring; the figures stay until `profile` is taken.
  void set_profiling(bool on) { profiling_ = on; }
  const Profile& profile() const { return profile_; }
  /// Whether collectives go on beside the run where the program has something to do meanwhile; true until told otherwise. The
  /// results are the same, and ranks need not agree.
  void set_beside(bool on) { beside_ = on; }
  /// From now on each instruction adds to `events`, up to a million in all; null: no more.
  void set_trace(std::vector<TraceEvent>* events) { trace_ = events; }
  /// From now on runs look for the first NaN, and for an infinity before it, that is made of numbers which were none, and say
  /// in `origin` by which nodes. Takes a pass over all that is computed. Null: no more.
  void set_watch(std::string* origin) { watch_ = origin; }

 private:
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
  void await(int32_t next);
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
  [[noreturn]] void fail(const Instruction& instruction, const KernelStatus& status) const;

  std::shared_ptr<const Program> program_;
  const Store& store_;
  ThreadPool& pool_;
  std::shared_ptr<RunRoom> room_;
  std::vector<Communicator*> groups_;
  std::vector<Tensor> entries_;                 ///< the program's store entries
  std::vector<TensorView> views_;               ///< by buffer, for the present symbol values
  std::vector<std::shared_ptr<Blob>> unsized_;  ///< memory of buffers whose size depends on data
  std::vector<int64_t> symbols_;                ///< values, -1 where unbound
  bool sized_ = false;                          ///< whether `views_` are those of `symbols_`
  std::vector<int64_t> offsets_, capacities_;   ///< by buffer; where the program has no bounds
  std::shared_ptr<Blob> arena_, scratch_;
  std::vector<TensorView> in_, out_;                            ///< operands of the instruction at hand
  std::vector<std::vector<std::unique_ptr<Executor>>> bodies_;  ///< by instruction; made when first taken
  /// A collective that goes on beside the run, or that waits behind such a one.
  struct UnderWay {
    int64_t number = 0;   ///< the courier's
    int32_t awaited = 0;  ///< before which instruction it has to be done
    TraceEvent event;
  };
  static constexpr int32_t never = std::numeric_limits<int32_t>::max();
  bool beside_ = true;
  std::deque<UnderWay> under_way_;    ///< in the order in which they were begun
  int32_t due_ = never;               ///< the least `awaited` of them
  std::unique_ptr<Courier> courier_;  ///< made when it is first needed; the last to use what stands above
  bool profiling_ = false;
  Profile profile_;
  std::vector<TraceEvent>* trace_ = nullptr;
  std::string* watch_ = nullptr;
  bool watched_nan_ = false;  ///< whether what `watch_` says is of a NaN
};

}  // namespace plait

#pragma once
// The emulated machine: contexts, streams, events and graphs, and a thread for each device.
//
// Streams are lazy: a device begins when a host thread waits, or after a random delay. Which stream goes next is drawn from a seed;
// only events order two streams. So what misses a wait gets wrong results in tests, not only on some machine.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/emulated/driver_control.h"
#include "kernels/emulated/driver_memory.h"

namespace plait::emulated {

using cuda::Status;

/// A piece of work of a stream. `run` is called without the machine's lock, the others with it.
struct Item {
  std::function<Status()> run;
  std::function<bool()> ready;               ///< null: at once
  bool signals = false;                      ///< hosts and other streams may wait for it
  bool kernels = false;                      ///< accesses memory at the devices' addresses
  std::function<bool()> finished = nullptr;  ///< after `run`; false: it is run again once it is ready. Null: always
  std::function<Item()> again =
      nullptr;  ///< in a graph: the work of each launch, in place of this. Null: each time the same
};

/// Work of a graph, which runs after the nodes `after`, all of which are before it.
struct GraphNode {
  Item item;
  std::set<size_t> after;
};

/// A call of cuEventRecord. Each has its own, since an event may be recorded again in another stream, which gets there first.
struct EventRecord {
  bool done = false;
};

}  // namespace plait::emulated

struct CUctx_st {
  int device = 0;
  int retained = 0;
  int streams = 0, events = 0, libraries = 0;
  plait::cuda::Status sticky = 0;  ///< the error that ended the context
  /// A bit for each device whose memory it may access. Work reads it without the machine's lock.
  std::atomic<uint32_t> peers = 0;
  bool accesses(int other) const { return other == device || (other >= 0 && peers >> other & 1); }
};
struct CUgraph_st {
  std::vector<plait::emulated::GraphNode> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};
/// A capture under way: of the stream where it began, and of those that have joined by events.
struct Capture {
  CUstream_st* origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::map<CUstream_st*, std::set<size_t>> tails;  ///< by stream: the nodes that its next one runs after
  std::thread::id thread;
  bool invalid = false;
};
struct CUevent_st {
  CUctx_st* context = nullptr;
  std::shared_ptr<plait::emulated::EventRecord> record;  ///< the last one; null: none
  std::shared_ptr<Capture> capture;                      ///< where it was recorded last; null: not while capturing
  std::set<size_t> after;                                ///< the nodes before the record
};
struct CUstream_st {
  CUctx_st* context = nullptr;
  std::deque<plait::emulated::Item> queue;
  std::shared_ptr<Capture> capture;
  bool running = false;
};

namespace plait::emulated {

class Machine {
 public:
  /// The process's machine; never destroyed, since its threads may still run when the process ends.
  static Machine& get();

  std::mutex mutex;                 ///< of all that follows, but `memory`
  std::condition_variable changed;  ///< what hosts wait for
  DeviceMemory memory;
  std::vector<std::unique_ptr<CUctx_st>> contexts;  ///< by device
  std::map<std::byte*, size_t> pinned;              ///< of cuMemHostAlloc
  std::set<CUstream_st*> streams;
  std::set<const void*> objects;  ///< events, graphs and libraries that exist
  plait_emulated_counts counts{};
  int64_t device_bytes = 0;  ///< memory of each device

  int devices() const { return static_cast<int>(contexts.size()); }
  /// Whether the N-th call that `plait_emulated_fail` named is this one; 0: it is not.
  Status planted(const char* function);
  void plant(const char* text);
  void seed(uint64_t seed);
  uint64_t random();
  /// The text of cuGetErrorString for a failed launch: the kernel's own. Empty: none has failed.
  const char* failure() const { return failures_.empty() ? "" : failures_.back().c_str(); }
  void set_failure(const std::string& text);

  // With the lock held:
  /// Queues the work in the stream, or adds it to the graph that it captures.
  Status give(CUstream_st* stream, Item item);
  /// Waits until `done`; devices hurry meanwhile. Returns the context's error.
  Status wait(std::unique_lock<std::mutex>& lock, const CUctx_st& context, const std::function<bool()>& done);
  /// Whether a host thread may call what CUDA forbids while it captures; ends the capture otherwise.
  Status forbid_while_capturing();
  void start(int device);
  /// Devices look at their streams again.
  void wake_all();
  /// A host looks at work of the device instead of waiting: it begins now.
  void hasten(int device);
  /// Waits, not longer than the limit, until all streams are empty; devices hurry meanwhile. Returns whether they are.
  bool settle(std::unique_lock<std::mutex>& lock, std::chrono::seconds limit);

 private:
  Machine();
  /// The thread of a device.
  struct Worker {
    std::condition_variable wake;
    std::chrono::steady_clock::time_point due;  ///< when it begins by itself
    bool started = false;
    std::set<int> open;  ///< devices whose memory it has opened
  };
  void work(int device);
  CUstream_st* next(int device);
  bool has_work(int device) const;
  void run(CUstream_st* stream, std::unique_lock<std::mutex>& lock);
  void close(Worker& worker);

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Worker>> workers_;  ///< by device
  int hurry_ = 0;                                 ///< host threads that wait
  std::string plan_function_;
  int64_t plan_calls_ = 0;  ///< until the planted failure; 0: none
  Status plan_status_ = 0;
  std::deque<std::string> failures_;  ///< all, since callers keep pointers
};

/// One launch of a graph: runs the nodes in a random order that keeps their dependencies. With the machine's lock unless stated otherwise.
class GraphRun {
 public:
  explicit GraphRun(std::shared_ptr<const CUgraph_st> graph);
  /// Whether a node can run.
  bool ready();
  /// Runs nodes until none can; now and then other streams get a turn before. Without the lock.
  Status run();
  bool finished() const { return !left_; }

 private:
  /// The place of such a node in `free_`, drawn from the seed; -1 if none can.
  int64_t next();

  std::shared_ptr<const CUgraph_st> graph_;
  std::vector<Item> items_;                     ///< by node
  std::vector<size_t> before_;                  ///< by node: of those that it runs after, how many have not run
  std::vector<std::vector<size_t>> followers_;  ///< by node
  std::vector<size_t> free_;                    ///< nodes that run after none
  size_t left_;
};

}  // namespace plait::emulated

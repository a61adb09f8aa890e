#include "kernels/cuda/cuda_device.h"

#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cuda/island.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/packed_arrays.h"
#include "kernels/cuda/peer_communicator.h"
#include "kernels/cuda/staged_communicator.h"
#include "kernels/cuda/staging.h"

namespace plait::cuda {
namespace {

DevicePtr address(const std::byte* data) { return reinterpret_cast<DevicePtr>(data); }

class StreamQueue : public CudaQueue {
 public:
  StreamQueue(std::shared_ptr<CudaContext> context, FaultWord* fault_word)
      : context_(std::move(context)), fault_word_(fault_word) {
    context_->driver().call(context_->driver().stream_create, &stream_, stream_non_blocking, 0);
    context_->add(stream_);
  }
  ~StreamQueue() override {
    context_->remove(stream_);
    context_->driver().stream_destroy(stream_);
  }

  Stream stream() const override { return stream_; }
  FaultWord* fault_word() const override { return fault_word_; }
  /// Throws what `launch` met since the last call.
  void check() {
    if (refused_) std::rethrow_exception(std::exchange(refused_, nullptr));
  }

 private:
  void enqueue(const char* name, Extent grid, Extent block, unsigned shared_bytes, void** parameters) override {
    const CudaDriver& driver = context_->driver();
    try {
      auto* const function = reinterpret_cast<Function>(context_->kernel(name, shared_bytes));
      const LaunchConfig config{grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, stream_, nullptr, 0};
      if (const Status status = driver.launch(&config, function, parameters, nullptr))
        driver.fail(status, cat(driver.launch.name, " of ", name).c_str());
    } catch (...) {
      if (!refused_) refused_ = std::current_exception();
    }
  }

  const std::shared_ptr<CudaContext> context_;
  FaultWord* const fault_word_;
  Stream stream_ = nullptr;
  std::exception_ptr refused_;
};

/// A CUDA graph.
class CapturedGraph : public Captured {
 public:
  CapturedGraph(std::shared_ptr<CudaContext> context, Graph graph, Fault* fault)
      : fault(fault), context_(std::move(context)) {
    const Status status = context_->driver().graph_instantiate(&exec_, graph, 0ULL);
    context_->driver().graph_destroy(graph);
    if (status) context_->driver().fail(status, context_->driver().graph_instantiate.name);
  }
  ~CapturedGraph() override { context_->driver().graph_exec_destroy(exec_); }
  GraphExec exec() const { return exec_; }

  Fault* const fault;  ///< of the launches that have one

 private:
  const std::shared_ptr<CudaContext> context_;
  GraphExec exec_ = nullptr;
};

class CudaDevice : public Device {
 public:
  CudaDevice(std::shared_ptr<const CudaLibraries> libraries, int ordinal)
      : context_(std::make_shared<CudaContext>(std::move(libraries), ordinal)),
        fault_memory_(context_->take_pinned(sizeof(FaultWord))),
        staging_(context_, [this](Event event) { context_->wait_for(event); }),
        compute_(context_, fault_word()),
        copies_(context_, fault_word()),
        collective_(context_, fault_word()) {
    *fault_word() = {};
  }
  /// Members are destroyed in the context.
  ~CudaDevice() override { driver().context_set(context_->handle()); }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  bool shares_host_memory() const override { return false; }

  std::shared_ptr<Blob> take(int64_t bytes) override {
    std::shared_ptr<Blob> out = context_->take(bytes);
    if (!bytes) return out;
    std::lock_guard lock(mutex_);
    driver().call(driver().fill, address(out->data()), static_cast<unsigned char>(0), static_cast<size_t>(bytes),
                  copies_.stream());
    context_->wait_for(static_cast<Event>(record(copies_).handle.get()));
    return out;
  }
  std::optional<DeviceMemoryInfo> memory() override { return context_->memory(); }
  int64_t array_bytes(std::string_view layout, DType dtype, const Shape& shape) const override {
    return packed_array_bytes(layout, dtype, shape);
  }
  Queue& queue(Use use) override { return use == Use::compute ? compute_ : use == Use::copy ? copies_ : collective_; }

  void write(Queue& queue, std::byte* to, const void* host, int64_t bytes) override {
    if (!bytes) return;
    context_->enter();
    std::lock_guard lock(mutex_);
    staging_.write(stream(queue), to, host, bytes);
  }
  void read(Queue& queue, void* host, const std::byte* from, int64_t bytes) override {
    if (!bytes) return;
    context_->enter();
    std::lock_guard lock(mutex_);
    staging_.read(stream(queue), host, from, bytes);
  }
  void copy(Queue& queue, std::byte* to, const std::byte* from, int64_t bytes) override {
    if (!bytes || to == from) return;
    context_->enter();
    driver().call(driver().copy, address(to), address(from), static_cast<size_t>(bytes), stream(queue));
  }
  void fill(Queue& queue, std::byte* to, uint8_t value, int64_t bytes) override {
    if (!bytes) return;
    context_->enter();
    driver().call(driver().fill, address(to), value, static_cast<size_t>(bytes), stream(queue));
  }
  void put_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) override {
    copy_block(queue, whole, dim, begin, part, true);
  }
  void take_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) override {
    copy_block(queue, whole, dim, begin, part, false);
  }

  void launch(Queue& queue, const Kernel& kernel, const KernelCall& call) override {
    if (kernel.device == DeviceKind::host) return run_island(*this, queue, kernel, call);
    context_->enter();
    if (call.fault) fault_ = call.fault;
    const KernelStatus status = kernel.run(call);  // what shapes show; data are seen by the kernel
    if (status.code != KernelCode::ok && call.fault && !call.fault->found()) *call.fault = {status, call.instruction};
    static_cast<StreamQueue&>(queue).check();
  }
  Shape output_shape(Queue& queue, const Kernel& kernel, const KernelState* state, std::span<const TensorView> inputs,
                     int output) override {
    return kernel.output_shape(state, HostOperands(*this, queue, inputs).views(), output);
  }

  QueueEvent submit(Queue& queue, std::function<void()> work) override {
    Queue* const before = std::exchange(current_, &queue);
    try {
      work();
    } catch (...) {
      current_ = before;
      throw;
    }
    current_ = before;
    return record(queue);
  }
  QueueEvent record(Queue& queue) override {
    context_->enter();
    std::shared_ptr<void> event = take_event();
    driver().call(driver().event_record, static_cast<Event>(event.get()), stream(queue));
    return {&queue, 0, std::move(event)};
  }
  void wait(Queue& queue, const QueueEvent& event) override {
    if (!event.queue || event.queue == &queue) return;
    context_->enter();
    driver().call(driver().stream_wait, stream(queue), static_cast<Event>(event.handle.get()), 0U);
  }
  void finish(const QueueEvent& event) override {
    if (!event.queue) return;
    context_->enter();
    context_->wait_for(static_cast<Event>(event.handle.get()));
    take_fault();
  }
  void abandon(Queue& queue) noexcept override {
    bool finished = false;
    try {
      finish(record(queue));
      finished = true;
    } catch (...) {
    }
    if (!finished) driver().stream_synchronize(stream(queue));  // groups have been aborted, so what is queued ends
    *fault_word() = {};
  }

  std::unique_ptr<Communicator> communicator(std::unique_ptr<Communicator> host) override {
    const auto queue = [this]() -> Queue& { return *current_; };
    const std::shared_ptr<Communicator> ranks = std::move(host);
    std::unique_ptr<StagedCommunicator> out;
    if (nccl_connects(*context_, *ranks)) out = std::make_unique<NcclCommunicator>(context_, *this, queue, ranks);
    else out = std::make_unique<StagedCommunicator>(*this, queue, ranks);
    std::string refusal;
    if (auto memory = PeerMemory::connect(context_, *this, ranks, refusal))
      return std::make_unique<PeerCommunicator>(context_, *this, queue, ranks, std::move(memory), std::move(out));
    out->set_refusal(refusal);
    return out;
  }

  bool captures() const override { return true; }
  std::unique_ptr<Captured> capture(Queue& queue, FunctionRef<void()> work) override {
    context_->enter();
    const Capturing capturing(*context_);
    fault_ = nullptr;
    driver().call(driver().capture_begin, stream(queue), capture_thread_local);
    std::exception_ptr failed;
    try {
      work();
    } catch (...) {
      failed = std::current_exception();
    }
    Graph graph = nullptr;
    const Status status = driver().capture_end(stream(queue), &graph);
    if (failed) {
      if (graph) driver().graph_destroy(graph);
      std::rethrow_exception(failed);
    }
    if (status) driver().fail(status, driver().capture_end.name);
    return std::make_unique<CapturedGraph>(context_, graph, fault_);
  }
  void replay(Queue& queue, Captured& captured) override {
    context_->enter();
    auto& graph = static_cast<CapturedGraph&>(captured);
    if (graph.fault) fault_ = graph.fault;
    driver().call(driver().graph_launch, graph.exec(), stream(queue));
  }

 private:
  const CudaDriver& driver() const { return context_->driver(); }
  static Stream stream(Queue& queue) { return static_cast<StreamQueue&>(queue).stream(); }
  FaultWord* fault_word() const { return reinterpret_cast<FaultWord*>(fault_memory_->mutable_data()); }

  /// Gives what a kernel has reported to the run that launched it.
  void take_fault() {
    FaultWord& word = *fault_word();
    if (!word.code) return;
    if (fault_ && !fault_->found())
      *fault_ = {{static_cast<KernelCode>(word.code), word.operand, word.value}, word.instruction};
    word = {};
  }

  /// An event without time, which returns to the pool when it has no owner.
  std::shared_ptr<void> take_event() {
    Event event = nullptr;
    {
      std::lock_guard lock(events_->mutex);
      if (!events_->free.empty()) {
        event = events_->free.back();
        events_->free.pop_back();
      }
    }
    if (!event) driver().call(driver().event_create, &event, event_disable_timing);
    return {static_cast<void*>(event), [events = events_](void* one) { events->give_back(static_cast<Event>(one)); }};
  }

  /// Rows of the block's dim and the dims after it, at the distances of the whole's.
  void copy_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part, bool put) {
    if (!part.bytes()) return;
    context_->enter();
    const int64_t rows = part.shape.elements(0, dim), row_bytes = part.bytes() / rows;
    const int64_t pitch = row_bytes / part.shape[dim] * whole.shape[dim];
    std::byte* const block = whole.data + row_bytes / part.shape[dim] * begin;
    if (rows == 1) return put ? copy(queue, block, part.data, row_bytes) : copy(queue, part.data, block, row_bytes);
    Copy2D copy{};
    copy.from_kind = copy.to_kind = memory_device;
    copy.from_device = address(put ? part.data : block);
    copy.from_pitch = static_cast<size_t>(put ? row_bytes : pitch);
    copy.to_device = address(put ? block : part.data);
    copy.to_pitch = static_cast<size_t>(put ? pitch : row_bytes);
    copy.width_bytes = static_cast<size_t>(row_bytes);
    copy.height = static_cast<size_t>(rows);
    driver().call(driver().copy_2d, static_cast<const Copy2D*>(&copy), stream(queue));
  }

  /// Events without an owner.
  struct EventPool {
    explicit EventPool(std::shared_ptr<CudaContext> context) : context(std::move(context)) {}
    ~EventPool() {  // by the owner of the last event
      context->driver().context_set(context->handle());
      for (Event event : free) context->driver().event_destroy(event);
    }
    void give_back(Event event) {
      bool kept = false;
      try {
        std::lock_guard lock(mutex);
        free.push_back(event);
        kept = true;
      } catch (...) {  // out of memory
      }
      if (!kept) context->driver().event_destroy(event);
    }
    const std::shared_ptr<CudaContext> context;
    std::mutex mutex;
    std::vector<Event> free;
  };

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<Blob> fault_memory_;
  std::mutex mutex_;  ///< of `staging_`
  StagingRing staging_;
  StreamQueue compute_, copies_, collective_;
  const std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>(context_);
  Fault* fault_ = nullptr;      ///< of the latest launch's run
  Queue* current_ = &compute_;  ///< where communicators enqueue
};

}  // namespace

std::shared_ptr<Device> make_cuda_device(std::shared_ptr<const CudaLibraries> libraries, int ordinal) {
  return std::make_shared<CudaDevice>(std::move(libraries), ordinal);
}

}  // namespace plait::cuda

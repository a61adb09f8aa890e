#include "tests/unit/support/guarded_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "core/base/block.h"
#include "core/base/error.h"

namespace plait {

/// Linked instead of core/exec/default_device.cpp: every Store of the program is on a guarded device.
std::shared_ptr<Device> default_device() { return test::make_guarded_device(); }

}  // namespace plait

namespace plait::test {
namespace {

constexpr int64_t space_bytes = int64_t{64} << 30;  ///< of addresses; pages take memory once they are written
constexpr int64_t page = 4096;

/// Two mappings of one file in memory. Addresses are handed out once.
class Space : public std::enable_shared_from_this<Space> {
 public:
  Space() : file_(memfd_create("guarded", 0)) {
    if (file_ < 0 || ftruncate(file_, space_bytes) != 0) throw Error(Code::out_of_memory, "no file in memory");
    guarded_ = map(PROT_NONE);
    open_ = map(PROT_READ | PROT_WRITE);
  }
  ~Space() {
    munmap(guarded_, space_bytes);
    munmap(open_, space_bytes);
    close(file_);
  }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  std::byte* take(int64_t bytes) {
    const int64_t rounded = (bytes + page - 1) / page * page + page;  // the page between two blocks belongs to neither
    std::lock_guard lock(mutex_);
    if (used_ + rounded > space_bytes) throw Error(Code::out_of_memory, "the guarded device has no addresses left");
    std::byte* out = guarded_ + used_;
    used_ += rounded;
    return out;
  }
  void free(std::byte* data, int64_t bytes) {  // a hole in the file reads as zeros, and takes no memory
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data - guarded_, (bytes + page - 1) / page * page);
  }
  bool owns(const std::byte* data) const { return data >= guarded_ && data < guarded_ + space_bytes; }
  /// The same byte where it can be read and written.
  std::byte* open(const std::byte* data) const {
    if (!data) return nullptr;
    if (!owns(data)) throw Error(Code::internal, "an array of the host where one of the device is expected");
    return open_ + (data - guarded_);
  }

 private:
  std::byte* map(int access) const {
    void* out = mmap(nullptr, space_bytes, access, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (out == MAP_FAILED) throw Error(Code::out_of_memory, "no addresses for the guarded device");
    return static_cast<std::byte*>(out);
  }

  const int file_;
  std::byte *guarded_ = nullptr, *open_ = nullptr;
  std::mutex mutex_;
  int64_t used_ = page;
};

class GuardedBlob : public Blob {
 public:
  GuardedBlob(std::shared_ptr<Space> space, int64_t bytes) : space_(std::move(space)) {
    data_ = space_->take(bytes);
    size_ = bytes;
  }
  ~GuardedBlob() override { space_->free(data_, size_); }

 private:
  const std::shared_ptr<Space> space_;
};

/// A host communicator that takes the device's addresses.
class GuardedCommunicator : public Communicator {
 public:
  GuardedCommunicator(std::shared_ptr<Space> space, std::unique_ptr<Communicator> host)
      : space_(std::move(space)), host_(std::move(host)) {}
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int world_rank(int rank) const override { return host_->world_rank(rank); }
  void all_reduce(const TensorView& data, Reduction reduction) override { host_->all_reduce(open(data), reduction); }
  void all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) override {
    host_->all_reduce_into(open(in), open(out), reduction);
  }
  void all_gather(const TensorView& part, const TensorView& all) override { host_->all_gather(open(part), open(all)); }
  void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) override {
    host_->reduce_scatter(open(all), open(part), reduction);
  }
  void all_to_all(const TensorView& from, const TensorView& to) override { host_->all_to_all(open(from), open(to)); }
  void broadcast(const TensorView& data, int root) override { host_->broadcast(open(data), root); }
  void barrier() override { host_->barrier(); }
  void send(const TensorView& data, int to, int64_t tag) override { host_->send(open(data), to, tag); }
  void recv(const TensorView& data, int from, int64_t tag, Patience patience) override {
    host_->recv(open(data), from, tag, patience);
  }
  double waited_s() const override { return host_->waited_s(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<GuardedCommunicator>(space_, host_->split(color, key));
  }
  void abort(std::string_view message) noexcept override { host_->abort(message); }
  int failed_rank() const noexcept override { return host_->failed_rank(); }

 private:
  TensorView open(TensorView view) const {
    view.data = space_->open(view.data);
    return view;
  }
  const std::shared_ptr<Space> space_;
  const std::unique_ptr<Communicator> host_;
};

class GuardedDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::host; }
  bool shares_host_memory() const override { return false; }
  std::shared_ptr<Blob> take(int64_t bytes) override { return std::make_shared<GuardedBlob>(space_, bytes); }
  Queue& queue(Use use) override { return host_->queue(use); }

  void write(Queue& queue, std::byte* to, const void* host, int64_t bytes) override {
    if (bytes) host_->write(queue, space_->open(to), host, bytes);
  }
  void read(Queue& queue, void* host, const std::byte* from, int64_t bytes) override {
    if (bytes) host_->read(queue, host, space_->open(from), bytes);
  }
  void copy(Queue& queue, std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes) host_->copy(queue, space_->open(to), space_->open(from), bytes);
  }
  void fill(Queue& queue, std::byte* to, uint8_t value, int64_t bytes) override {
    if (bytes) host_->fill(queue, space_->open(to), value, bytes);
  }
  void put_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) override {
    host_->put_block(queue, open(whole), dim, begin, open(part));
  }
  void take_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) override {
    host_->take_block(queue, open(whole), dim, begin, open(part));
  }

  void launch(Queue& queue, const Kernel& kernel, const KernelCall& call) override {
    const std::vector<TensorView> inputs = open(call.inputs), outputs = open(call.outputs);
    KernelCall opened{call.state, inputs,      outputs,    call.pool,
                      {},         call.queue, call.fault, call.instruction, call.strings, call.iteration};
    if (!call.scratch.empty()) opened.scratch = {space_->open(call.scratch.data()), call.scratch.size()};
    host_->launch(queue, kernel, opened);
  }
  Shape output_shape(Queue& queue, const Kernel& kernel, const KernelState* state, std::span<const TensorView> inputs,
                     int output) override {
    return host_->output_shape(queue, kernel, state, open(inputs), output);
  }
  QueueEvent submit(Queue& queue, std::function<void()> work) override { return host_->submit(queue, std::move(work)); }
  QueueEvent record(Queue& queue) override { return host_->record(queue); }
  void wait(Queue& queue, const QueueEvent& event) override { host_->wait(queue, event); }
  void finish(const QueueEvent& event) override { host_->finish(event); }
  void abandon(Queue& queue) noexcept override { host_->abandon(queue); }
  std::unique_ptr<Communicator> communicator(std::unique_ptr<Communicator> host) override {
    return std::make_unique<GuardedCommunicator>(space_, std::move(host));
  }

 private:
  TensorView open(TensorView view) const {
    view.data = space_->open(view.data);
    return view;
  }
  std::vector<TensorView> open(std::span<const TensorView> views) const {
    std::vector<TensorView> out(views.begin(), views.end());
    for (TensorView& view : out) view.data = space_->open(view.data);
    return out;
  }

  const std::shared_ptr<Space> space_ = std::make_shared<Space>();
  const std::shared_ptr<Device> host_ = make_host_device();
};

}  // namespace

std::shared_ptr<Device> make_guarded_device() { return std::make_shared<GuardedDevice>(); }

}  // namespace plait::test

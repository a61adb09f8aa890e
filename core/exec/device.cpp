#include "core/exec/device.h"

#include <cstring>

#include "core/base/block.h"
#include "core/base/error.h"
#include "core/exec/comm_thread.h"

namespace plait {

int64_t Device::array_bytes(std::string_view, DType dtype, const Shape& shape) const {
  return packed_bytes(shape.elements(), dtype_bits(dtype));
}

std::unique_ptr<Captured> Device::capture(Queue&, FunctionRef<void()>) {
  throw Error(Code::internal, "this device does not capture launches");
}

void Device::replay(Queue&, Captured&) { throw Error(Code::internal, "this device does not capture launches"); }

Tensor Device::upload(const Tensor& host) {
  if (shares_host_memory() || !host.present()) return host;
  Tensor out(host.dtype(), host.shape(), take(host.bytes()));
  write(queue(Use::compute), out.data(), host.data(), host.bytes());
  return out;
}

Tensor Device::fetch(const Tensor& array) { return shares_host_memory() ? array : fetch(array.view()); }

Tensor Device::fetch(const TensorView& array) {
  const int64_t bytes = array.bytes();
  if (shares_host_memory()) return {array.dtype, array.shape, borrow_blob(array.data, bytes, nullptr)};
  Tensor out(array.dtype, array.shape);
  read(queue(Use::compute), out.data(), array.data, bytes);
  return out;
}

void Device::overwrite(const TensorView& array, FunctionRef<void(const TensorView& host)> fill) {
  if (shares_host_memory()) return fill(array);
  const Tensor host(array.dtype, array.shape);
  fill(host.view());
  write(queue(Use::compute), array.data, host.data(), host.bytes());
}

namespace {

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class HostDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::host; }
  bool shares_host_memory() const override { return true; }
  std::shared_ptr<Blob> take(int64_t bytes) override { return make_blob(bytes); }
  Queue& queue(Use use) override { return use == Use::collective ? collective_ : compute_; }

  void write(Queue&, std::byte* to, const void* host, int64_t bytes) override { copy_bytes(to, host, bytes); }
  void read(Queue&, void* host, const std::byte* from, int64_t bytes) override { copy_bytes(host, from, bytes); }
  void copy(Queue&, std::byte* to, const std::byte* from, int64_t bytes) override { copy_bytes(to, from, bytes); }
  void fill(Queue&, std::byte* to, uint8_t value, int64_t bytes) override {
    if (bytes) std::memset(to, value, static_cast<size_t>(bytes));
  }
  void put_block(Queue&, const TensorView& whole, int dim, int64_t begin, const TensorView& part) override {
    plait::put_block(whole, dim, begin, part);
  }
  void take_block(Queue&, const TensorView& whole, int dim, int64_t begin, const TensorView& part) override {
    plait::take_block(whole, dim, begin, part);
  }

  void launch(Queue&, const Kernel& kernel, const KernelCall& call) override {
    const KernelStatus status = kernel.run(call);
    if (status.code != KernelCode::ok && call.fault && !call.fault->found()) *call.fault = {status, call.instruction};
  }
  Shape output_shape(Queue&, const Kernel& kernel, const KernelState* state, std::span<const TensorView> inputs,
                     int output) override {
    return kernel.output_shape(state, inputs, output);
  }

  QueueEvent submit(Queue& queue, std::function<void()> work) override {
    if (&queue == &collective_) {
      if (!comm_thread_) comm_thread_ = std::make_unique<CommThread>();
      return {&queue, comm_thread_->give(std::move(work)), nullptr};
    }
    work();
    return record(queue);
  }
  QueueEvent record(Queue& queue) override { return {&queue, 0, nullptr}; }
  void wait(Queue&, const QueueEvent& event) override { finish(event); }
  void finish(const QueueEvent& event) override {
    if (event.number) comm_thread_->await(event.number);
  }
  void abandon(Queue& queue) noexcept override {
    if (&queue == &collective_ && comm_thread_) comm_thread_->forget();
  }

 private:
  Queue compute_, collective_;
  std::unique_ptr<CommThread> comm_thread_;  ///< created on first use
};

}  // namespace

std::shared_ptr<Device> make_host_device() { return std::make_shared<HostDevice>(); }

}  // namespace plait

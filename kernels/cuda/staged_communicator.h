#pragma once
// Collectives of arrays on a device through host memory: for groups without NCCL.
#include <functional>
#include <memory>

#include "core/exec/device.h"

namespace plait::cuda {

/// A host communicator behind copies: results have the bits of the host's. Calls return when they are done. The device outlives the
/// calls; `queue` returns the queue whose work a call follows.
class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(Device& device, std::function<Queue&()> queue, std::shared_ptr<Communicator> host)
      : device_(device), queue_(std::move(queue)), host_(std::move(host)) {}

  std::string transport() const override { return "host memory" + no_peers_; }
  /// For reports: why devices do not write into each other's memory.
  void set_refusal(const std::string& why) { no_peers_ = " (" + why + ")"; }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int world_rank(int rank) const override { return host_->world_rank(rank); }
  void all_reduce(const TensorView& data, Reduction reduction) override { all_reduce_into(data, data, reduction); }
  void all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) override;
  void all_gather(const TensorView& part, const TensorView& all) override;
  void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) override;
  void all_to_all(const TensorView& from, const TensorView& to) override;
  void broadcast(const TensorView& data, int root) override;
  void barrier() override { host_->barrier(); }
  void send(const TensorView& data, int to, int64_t tag) override;
  void recv(const TensorView& data, int from, int64_t tag, Patience patience) override;
  double waited_s() const override { return host_->waited_s(); }
  /// By Device::communicator.
  std::unique_ptr<Communicator> split(int color, int key) override {
    return device_.communicator(host_->split(color, key));
  }
  void abort(std::string_view message) noexcept override { host_->abort(message); }
  int failed_rank() const noexcept override { return host_->failed_rank(); }
  void note_device_wait(double waited_s) noexcept override { host_->note_device_wait(waited_s); }

 protected:
  Device& device() const { return device_; }
  Queue& queue() const { return queue_(); }
  Communicator& host() const { return *host_; }
  const std::string& refusal() const { return no_peers_; }

 private:
  Tensor fetch(const TensorView& array) const;
  void put(const Tensor& host, const TensorView& array) const;

  Device& device_;
  const std::function<Queue&()> queue_;
  const std::shared_ptr<Communicator> host_;
  std::string no_peers_;
};

}  // namespace plait::cuda

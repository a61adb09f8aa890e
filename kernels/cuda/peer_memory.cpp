#include "kernels/cuda/peer_memory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cuda/gathered.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

/// What a rank tells the others about itself.
struct PeerMemory::Card {
  Context context;
  const std::array<std::shared_ptr<Blob>, channels>* buffers;  ///< in the memory of the process
  uint64_t process;
  int64_t device;
  DeviceId id;
};
struct PeerMemory::Handles {
  std::array<IpcHandle, channels> of;
};

namespace {

std::atomic_ref<int32_t> ended_ranks(const Mapping& memory) {
  return std::atomic_ref(*reinterpret_cast<int32_t*>(memory.data()));
}

std::string refused(const CudaDriver& driver, const char* function, Status status, std::string_view what) {
  return cat(function, " of ", what, ": ", driver.text(status));
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::connect(const std::shared_ptr<CudaContext>& context, Device& device,
                                                const std::shared_ptr<Communicator>& host, std::string& refusal) {
  const int ranks = host->size();
  if (ranks < 2 || ranks > most_peers) {
    refusal = cat("a group of ", ranks, " ranks: 2 to ", most_peers, " access each other's memory");
    return nullptr;
  }
  std::unique_ptr<PeerMemory> out(new PeerMemory(context, host));
  const CudaDriver& driver = context->driver();
  Card own{context->handle(), &out->own_, process_identity(), context->device(), {}};
  driver.call(driver.device_id, &own.id, context->device());
  const std::vector<Card> cards = gathered(*host, own);
  std::set<std::string> devices;
  for (const Card& one : cards) devices.emplace(one.id.bytes, sizeof one.id.bytes);
  if (devices.size() < cards.size()) refusal = "ranks share a device";
  if (refusal.empty()) refusal = out->agreed(out->meet_processes(cards));
  if (refusal.empty()) refusal = out->agreed(out->enable_access(cards));
  if (!refusal.empty()) return nullptr;

  for (std::shared_ptr<Blob>& one : out->own_) one = device.take(peer_buffer_bytes(ranks));
  Handles handles{};
  refusal = out->agreed(out->ended_ ? out->make_handles(handles) : "");
  if (!refusal.empty()) return nullptr;
  refusal = out->agreed(
      out->open_handles(cards, gathered(*host, handles)));  // also: all have taken the buffers of their process
  return refusal.empty() ? std::move(out) : nullptr;
}

/// The first rank's refusal; empty if no rank refuses.
std::string PeerMemory::agreed(std::string_view own_refusal) const {
  using Text = std::array<char, 240>;
  Text own{};
  own_refusal.copy(own.data(), own.size() - 1);
  const std::vector<Text> all = gathered(*host_, own);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank][0]) return cat("rank ", host_->world_rank(static_cast<int>(rank)), ": ", all[rank].data());
  return "";
}

/// Ranks of several processes share a word of host memory, which also shows that they are on one machine.
std::string PeerMemory::meet_processes(const std::vector<Card>& cards) {
  const auto here = [](const Card& one) { return one.process == process_identity(); };
  if (std::all_of(cards.begin(), cards.end(), here)) return "";
  Mapping::Handle handle;
  std::string refusal;
  const auto attempt = [&](auto make) {
    try {
      ended_ = make();
    } catch (const Error& error) {
      refusal = error.message();
    }
  };
  if (host_->rank() == 0) attempt([] { return Mapping::between_processes(sizeof(int32_t)); });
  if (ended_) handle = ended_->handle();
  const Mapping::Handle first = gathered(*host_, handle)[0];
  if (host_->rank() && first.process) attempt([&] { return Mapping::attach(first); });
  return refusal;
}

/// Of devices of this process.
std::string PeerMemory::enable_access(const std::vector<Card>& cards) const {
  const CudaDriver& driver = context_->driver();
  context_->enter();
  for (const Card& one : cards) {
    if (one.process != process_identity() || one.device == context_->device()) continue;
    const std::string what = cat("device ", one.device, " by device ", context_->device());
    int possible = 0;
    if (const Status status =
            driver.peer_possible(&possible, context_->device(), static_cast<DeviceNumber>(one.device)))
      return refused(driver, driver.peer_possible.name, status, what);
    if (!possible) return cat("no access to ", what);
  }
  for (const Card& one : cards) {
    if (one.process != process_identity() || one.device == context_->device()) continue;
    const Status status = driver.peer_enable(one.context, 0U);
    if (status && status != cuda_peer_access_already_enabled)
      return refused(driver, driver.peer_enable.name, status,
                     cat("device ", one.device, " by device ", context_->device()));
  }
  return "";
}

std::string PeerMemory::make_handles(Handles& out) {
  const CudaDriver& driver = context_->driver();
  exported_ = true;
  for (int channel = 0; channel < channels; ++channel) {
    const auto at = reinterpret_cast<DevicePtr>(own_[static_cast<size_t>(channel)]->data());
    if (const Status status = driver.ipc_get(&out.of[static_cast<size_t>(channel)], at))
      return refused(driver, driver.ipc_get.name, status, cat("a buffer of device ", context_->device()));
  }
  return "";
}

std::string PeerMemory::open_handles(const std::vector<Card>& cards, const std::vector<Handles>& handles) {
  const CudaDriver& driver = context_->driver();
  for (size_t rank = 0; rank < cards.size(); ++rank)
    for (size_t channel = 0; channel < channels; ++channel) {
      if (cards[rank].process == process_identity()) {
        shared_.push_back((*cards[rank].buffers)[channel]);
        buffers_[rank][channel] = shared_.back()->mutable_data();
        continue;
      }
      DevicePtr at = 0;
      if (const Status status = driver.ipc_open(&at, handles[rank].of[channel], ipc_lazy_peer_access))
        return refused(
            driver, driver.ipc_open.name, status,
            cat("rank ", host_->world_rank(static_cast<int>(rank)), "'s buffer by device ", context_->device()));
      opened_.push_back(at);
      buffers_[rank][channel] = reinterpret_cast<std::byte*>(at);
    }
  return "";
}

PeerMemory::~PeerMemory() {
  if (!exported_) return;
  context_->settle();
  bool closed = true;
  for (const DevicePtr one : opened_) closed = context_->driver().ipc_close(one) == cuda_success && closed;
  const auto ended = ended_ranks(*ended_);
  ended.fetch_add(closed);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (ended.load() < host_->size() && host_->failed_rank() < 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (ended.load() >= host_->size()) return;
  try {  // memory that is open elsewhere keeps its owners, which nothing refers to
    for (const std::shared_ptr<Blob>& one : own_) new std::shared_ptr<Blob>(one);
  } catch (...) {  // no memory for that: they are freed
  }
}

}  // namespace plait::cuda

#include "kernels/emulated/driver_machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace plait::emulated {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t longest_delay_us = 2000;

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

/// What a function returns when it is made to fail.
Status usual_failure(const std::string& function) {
  if (function.find("Alloc") != std::string::npos) return cuda::cuda_out_of_memory;
  return function == "cuInit" ? cuda::cuda_no_device : cuda::cuda_unknown;
}

}  // namespace

Machine& Machine::get() {
  static Machine* const machine = new Machine;
  return *machine;
}

Machine::Machine()
    : device_bytes(number_from("PLAIT_EMULATE_BYTES", int64_t{256} << 20)),
      random_(number_from("PLAIT_EMULATE_SEED", 1)) {
  const int64_t count = std::min<int64_t>(std::max<int64_t>(number_from("PLAIT_EMULATE_DEVICES", 1), 0), 8);
  for (int device = 0; device < count; ++device) {
    contexts.push_back(std::make_unique<CUctx_st>());
    contexts.back()->device = device;
    workers_.push_back(std::make_unique<Worker>());
  }
  plant(std::getenv("PLAIT_EMULATE_FAIL"));
}

void Machine::plant(const char* text) {
  plan_calls_ = 0;
  if (!text || !*text) return;
  const char* colon = std::strchr(text, ':');
  plan_function_ = colon ? std::string(text, colon) : text;
  char* end = nullptr;
  plan_calls_ = colon ? std::strtoll(colon + 1, &end, 10) : 1;
  plan_status_ =
      end && *end == ':' ? static_cast<Status>(std::strtol(end + 1, nullptr, 10)) : usual_failure(plan_function_);
}

Status Machine::planted(const char* function) {
  return plan_calls_ > 0 && plan_function_ == function && --plan_calls_ == 0 ? plan_status_ : 0;
}

void Machine::seed(uint64_t seed) { random_.seed(seed); }
uint64_t Machine::random() { return random_(); }

void Machine::set_failure(const std::string& text) { failures_.push_back(text); }

Status Machine::give(CUstream_st* stream, Item item) {
  if (stream->context->sticky) return stream->context->sticky;
  if (Capture* capture = stream->capture.get()) {
    if (capture->invalid) return cuda::cuda_stream_capture_invalidated;
    std::set<size_t>& tail = capture->tails[stream];
    capture->graph->nodes.push_back({std::move(item), tail});
    tail = {capture->graph->nodes.size() - 1};
    return 0;
  }
  const int device = stream->context->device;
  Worker& worker = *workers_[static_cast<size_t>(device)];
  if (next(device) == nullptr) {
    worker.due = Clock::now() + std::chrono::microseconds(random() % longest_delay_us);
    worker.wake.notify_one();
  }
  stream->queue.push_back(std::move(item));
  return 0;
}

Status Machine::wait(std::unique_lock<std::mutex>& lock, const CUctx_st& context, const std::function<bool()>& done) {
  if (done()) return context.sticky;
  ++hurry_;
  wake_all();
  changed.wait(lock, done);
  --hurry_;
  return context.sticky;
}

bool Machine::settle(std::unique_lock<std::mutex>& lock, std::chrono::seconds limit) {
  ++hurry_;
  wake_all();
  const bool out = changed.wait_for(lock, limit, [&] {
    return std::all_of(streams.begin(), streams.end(), [](const CUstream_st* one) { return one->queue.empty(); });
  });
  --hurry_;
  return out;
}

Status Machine::forbid_while_capturing() {
  Status out = 0;
  for (CUstream_st* stream : streams)
    if (stream->capture && stream->capture->thread == std::this_thread::get_id()) {
      stream->capture->invalid = true;
      out = cuda::cuda_stream_capture_unsupported;
    }
  return out;
}

void Machine::start(int device) {
  if (!std::exchange(workers_[static_cast<size_t>(device)]->started, true))
    std::thread([this, device] { work(device); }).detach();
}

void Machine::wake_all() {
  for (const auto& worker : workers_) worker->wake.notify_one();
}

void Machine::hasten(int device) {
  Worker& worker = *workers_[static_cast<size_t>(device)];
  worker.due = Clock::now();
  worker.wake.notify_one();
}

/// A stream of the device whose next item can run, drawn from the seed; null if no stream has one.
CUstream_st* Machine::next(int device) {
  std::vector<CUstream_st*> ready;
  for (CUstream_st* stream : streams)
    if (stream->context->device == device && !stream->queue.empty() && !stream->running &&
        (!stream->queue.front().ready || stream->context->sticky || stream->queue.front().ready()))
      ready.push_back(stream);
  return ready.empty() ? nullptr : ready[random() % ready.size()];
}

bool Machine::has_work(int device) const {
  return std::any_of(streams.begin(), streams.end(), [&](const CUstream_st* stream) {
    return stream->context->device == device && !stream->queue.empty();
  });
}

void Machine::work(int device) {
  Worker& worker = *workers_[static_cast<size_t>(device)];
  std::unique_lock lock(mutex);
  for (;;) {
    CUstream_st* stream = next(device);
    if (stream && (hurry_ || Clock::now() >= worker.due)) {
      run(stream, lock);
      continue;
    }
    close(worker);
    if (stream) worker.wake.wait_until(lock, worker.due);
    else if (has_work(device))
      worker.wake.wait_for(lock, std::chrono::milliseconds(1));  // it may wait for another process
    else worker.wake.wait(lock);
  }
}

void Machine::close(Worker& worker) {
  for (const int device : worker.open) memory.close(device);
  worker.open.clear();
}

/// Runs the stream's next item. Memory is out of reach again before a host that waits learns that it is done.
void Machine::run(CUstream_st* stream, std::unique_lock<std::mutex>& lock) {
  const CUctx_st& context = *stream->context;
  Worker& worker = *workers_[static_cast<size_t>(context.device)];
  stream->running = true;
  Item item = std::move(stream->queue.front());
  if (item.kernels) {
    for (int device = 0; device < devices(); ++device)
      if (context.accesses(device) && worker.open.insert(device).second) memory.open(device);
  }
  if (!context.sticky) {
    lock.unlock();
    const Status status = item.run();
    lock.lock();
    if (status && !context.sticky) stream->context->sticky = status;
  }
  stream->running = false;
  if (!context.sticky && item.finished && !item.finished()) {
    stream->queue.front() = std::move(item);
    return;
  }
  stream->queue.pop_front();
  if (!item.signals && !stream->queue.empty() && !context.sticky) return;
  if (hurry_) close(worker);
  changed.notify_all();
  wake_all();
}

GraphRun::GraphRun(std::shared_ptr<const CUgraph_st> graph) : graph_(std::move(graph)), left_(graph_->nodes.size()) {
  followers_.resize(left_);
  for (size_t node = 0; node < left_; ++node) {
    const auto& [item, after] = graph_->nodes[node];
    items_.push_back(item.again ? item.again() : item);
    before_.push_back(after.size());
    for (const size_t earlier : after) followers_[earlier].push_back(node);
    if (after.empty()) free_.push_back(node);
  }
}

bool GraphRun::ready() {
  return finished() || std::any_of(free_.begin(), free_.end(),
                                   [&](size_t node) { return !items_[node].ready || items_[node].ready(); });
}

int64_t GraphRun::next() {
  std::vector<int64_t> can;
  for (size_t at = 0; at < free_.size(); ++at)
    if (const Item& item = items_[free_[at]]; !item.ready || item.ready()) can.push_back(static_cast<int64_t>(at));
  return can.empty() ? -1 : can[Machine::get().random() % can.size()];
}

Status GraphRun::run() {
  constexpr uint64_t turns = 16;
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  for (int64_t at = next(); at >= 0; at = machine.random() % turns ? next() : -1) {
    const size_t node = free_[static_cast<size_t>(at)];
    free_.erase(free_.begin() + at);
    lock.unlock();
    const Status status = items_[node].run();
    lock.lock();
    if (status) return status;
    --left_;
    for (const size_t later : followers_[node])
      if (!--before_[later]) free_.push_back(later);
  }
  return 0;
}

}  // namespace plait::emulated

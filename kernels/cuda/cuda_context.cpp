#include "kernels/cuda/cuda_context.h"

#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::cuda {
namespace {

/// Memory of the device, or pinned memory of the host.
class CudaBlob : public Blob {
 public:
  CudaBlob(std::shared_ptr<CudaContext> context, std::byte* data, int64_t bytes, bool pinned)
      : context_(std::move(context)), pinned_(pinned) {
    data_ = data;
    size_ = bytes;
  }
  ~CudaBlob() override {  // whatever fails here has been reported by work before
    const CudaDriver& driver = context_->driver();
    if (context_->has_groups()) context_->settle();
    try {
      context_->enter();
    } catch (...) {
    }
    if (pinned_) driver.host_free(data_);
    else driver.memory_free(reinterpret_cast<DevicePtr>(data_));
  }

 private:
  const std::shared_ptr<CudaContext> context_;
  const bool pinned_;
};

/// The driver allocates no empty blocks.
size_t at_least_one(int64_t bytes) { return static_cast<size_t>(bytes > 0 ? bytes : 1); }

}  // namespace

CudaContext::CudaContext(std::shared_ptr<const CudaLibraries> libraries, int ordinal)
    : libraries_(std::move(libraries)), ordinal_(ordinal) {
  find_device();
  driver().call(driver().context_retain, &context_, device_);
  try {
    enter();
    load_images();
  } catch (...) {
    release();
    throw;
  }
}

CudaContext::~CudaContext() { release(); }

void CudaContext::release() noexcept {
  driver().context_set(context_);
  for (const Library image : images_) driver().library_unload(image);
  driver().context_release(device_);
}

void CudaContext::load_images() {
  for (const void* image : libraries_->images) {
    Library loaded = nullptr;
    driver().call(driver().library_load, &loaded, image, static_cast<int*>(nullptr), static_cast<void**>(nullptr), 0U,
                  static_cast<int*>(nullptr), static_cast<void**>(nullptr), 0U);
    images_.push_back(loaded);
  }
}

void CudaContext::find_device() {
  int count = 0, major = 0, minor = 0;
  driver().call(driver().device_count, &count);
  if (ordinal_ < 0 || ordinal_ >= count)
    throw Error(
        Code::unsupported,
        cat("there is no CUDA device ", ordinal_, ": the driver has ", count, count == 1 ? " device" : " devices"),
        "device=cuda:N counts from 0, of those that the environment variable CUDA_VISIBLE_DEVICES leaves; a mesh "
        "takes a "
        "device for each rank, and device=cuda:0,0 lets two ranks share one");
  driver().call(driver().device_get, &device_, ordinal_);
  driver().call(driver().device_attribute, &major, attribute_compute_major, device_);
  driver().call(driver().device_attribute, &minor, attribute_compute_minor, device_);
  if (major < 8)
    throw Error(
        Code::unsupported,
        cat("CUDA device ", ordinal_, " has compute capability ", major, ".", minor, "; at least 8.0 is needed"),
        "choose a device of the generation Ampere or newer, or device=cpu");
}

std::shared_ptr<Blob> CudaContext::take(int64_t bytes) {
  enter();
  DevicePtr data = 0;
  const Status status = driver().memory_alloc(&data, at_least_one(bytes));
  if (status == cuda_out_of_memory) {
    const DeviceMemoryInfo info = memory();
    throw Error(Code::out_of_memory,
                cat(driver().memory_alloc.name, ": ", info.name, " has ", human_bytes(info.free), " free of ",
                    human_bytes(info.total), "; ", human_bytes(bytes), " more are needed"),
                "fewer pages (cache_bytes), smaller weights (int4) or more devices (mesh) need less, and so do fewer "
                "programs on the device");
  }
  if (status) driver().fail(status, driver().memory_alloc.name);
  return std::make_shared<CudaBlob>(shared_from_this(), reinterpret_cast<std::byte*>(data), bytes, false);
}

DeviceMemoryInfo CudaContext::memory() const {
  enter();
  size_t free = 0, total = 0;
  driver().call(driver().memory_info, &free, &total);
  DeviceId id{};
  driver().call(driver().device_id, &id, device_);
  return {static_cast<int64_t>(free), static_cast<int64_t>(total), std::string(id.bytes, sizeof id.bytes),
          cat("CUDA device ", ordinal_)};
}

std::shared_ptr<Blob> CudaContext::take_pinned(int64_t bytes) {
  enter();
  void* data = nullptr;
  driver().call(driver().host_alloc, &data, at_least_one(bytes), host_alloc_portable | host_alloc_mapped);
  return std::make_shared<CudaBlob>(shared_from_this(), static_cast<std::byte*>(data), bytes, true);
}

KernelHandle CudaContext::find_kernel(const char* name) const {
  for (const Library image : images_) {
    KernelHandle out = nullptr;
    const Status status = driver().library_kernel(&out, image, name);
    if (!status) return out;
    if (status != cuda_not_found) driver().fail(status, driver().library_kernel.name);
  }
  throw Error(Code::internal, cat("the plug-in ", quote(libraries_->plugin), " has no kernel ", name),
              "use the plug-in that was built with this library");
}

KernelHandle CudaContext::kernel(const char* name, unsigned shared_bytes) {
  std::lock_guard lock(mutex_);
  LoadedKernel& one = kernels_[name];
  if (!one.handle) one.handle = find_kernel(name);
  if (shared_bytes > one.shared_bytes) {
    driver().call(driver().kernel_set, kernel_max_dynamic_shared_bytes, static_cast<int>(shared_bytes), one.handle,
                  device_);
    one.shared_bytes = shared_bytes;
  }
  return one.handle;
}

void CudaContext::add(DeviceGroup& group) {
  std::lock_guard lock(work_mutex_);
  groups_.insert(&group);
}
void CudaContext::remove(DeviceGroup& group) noexcept {
  std::lock_guard lock(work_mutex_);
  groups_.erase(&group);
}
void CudaContext::add(Stream stream) {
  std::lock_guard lock(work_mutex_);
  streams_.insert(stream);
}
void CudaContext::remove(Stream stream) noexcept {
  std::lock_guard lock(work_mutex_);
  streams_.erase(stream);
}
bool CudaContext::has_groups() {
  std::lock_guard lock(work_mutex_);
  return !groups_.empty();
}

void CudaContext::check_groups() {
  std::lock_guard lock(work_mutex_);
  try {
    for (DeviceGroup* one : groups_) one->check();
  } catch (...) {
    for (DeviceGroup* one : groups_) one->stop();
    throw;
  }
}

void CudaContext::note_wait(double waited_s) noexcept {
  std::lock_guard lock(work_mutex_);
  for (DeviceGroup* one : groups_) one->note_wait(waited_s);
}

namespace {
/// Tells the groups how long a wait has taken, now and then, and that it has ended.
class NotedWait {
 public:
  explicit NotedWait(FunctionRef<void(double)> note) : note_(note) {}
  ~NotedWait() {
    if (begun_) note_(-1);
  }
  void still_waits() {
    const auto now = std::chrono::steady_clock::now();
    if (begun_ && now - noted_ < std::chrono::milliseconds(1)) return;
    noted_ = now;
    if (!begun_) begin_ = now;
    note_(begun_ ? std::chrono::duration<double>(now - begin_).count() : 0);
    begun_ = true;
  }

 private:
  const FunctionRef<void(double)> note_;
  bool begun_ = false;
  std::chrono::steady_clock::time_point begin_, noted_;
};
}  // namespace

void CudaContext::wait_for(Event event) {
  if (!has_groups()) return driver().call(driver().event_synchronize, event);
  const auto note = [this](double waited_s) { note_wait(waited_s); };
  NotedWait wait(note);
  for (;;) {
    const Status status = driver().event_query(event);
    if (status && status != cuda_not_ready) driver().fail(status, driver().event_query.name);
    if (status) wait.still_waits();
    check_groups();  // also at the end, which an error may have brought
    if (!status) return;
    std::this_thread::yield();
  }
}

void CudaContext::settle() noexcept {
  if (capturing_ == std::this_thread::get_id()) return;
  std::set<Stream> streams;
  try {
    {
      std::lock_guard lock(work_mutex_);
      streams = streams_;
    }
    enter();
    for (const Stream stream : streams) {
      Event event = nullptr;
      driver().call(driver().event_create, &event, event_disable_timing);
      try {
        {
          const std::lock_guard lock(capture_mutex_);
          driver().call(driver().event_record, event, stream);
        }
        wait_for(event);
      } catch (...) {  // then nothing waits for others any longer
      }
      driver().event_destroy(event);
    }
  } catch (...) {  // whatever fails here is reported by work
  }
}

}  // namespace plait::cuda

#include "core/exec/store.h"

#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// As Device::upload, of an array in a packed layout, whose blob may be longer than its elements.
Tensor upload_packed(Device& device, const Tensor& packed) {
  if (device.shares_host_memory()) return packed;
  const int64_t bytes = packed.blob()->size() - packed.offset();
  Tensor out(packed.dtype(), packed.shape(), device.take(bytes));
  device.write(device.queue(Device::Use::compute), out.data(), packed.data(), bytes);
  return out;
}

}  // namespace

Store::Store(std::shared_ptr<Store> weights, std::shared_ptr<Device> device)
    : device_(device ? std::move(device) : default_device()),
      weights_(device_->shares_host_memory() ? std::move(weights) : nullptr) {}

void Store::load(const Program& program, std::span<const int64_t> symbols, ThreadPool* pool, LoadProgress* progress) {
  std::vector<const StoreEntry*> missing;
  int64_t total = 0;
  for (const StoreEntry& entry : program.entries) {
    if (has(entry.key)) continue;
    missing.push_back(&entry);
    if (entry.source) total += entry.source->source_bytes();
  }
  if (progress) progress->stage(1, total);
  for (const StoreEntry* entry : missing) {
    if (progress) progress->check();
    const bool shared = entry->source && !entry->written && entry->dtype != DType::string;
    Store& home = shared && weights_ ? *weights_ : *this;
    home.make(*entry, symbols, pool);
    if (progress && entry->source) progress->advance(entry->source->source_bytes());
  }
}

/// Makes the array or waits until another thread has made it.
void Store::make(const StoreEntry& entry, std::span<const int64_t> symbols, ThreadPool* pool) {
  if (!begin_making(entry.key)) return;
  struct End {
    Store& store;
    const std::string& key;
    ~End() { store.end_making(key); }
  } end{*this, entry.key};
  if (!entry.source) {
    Shape shape;
    for (const Dim& dim : entry.dims) shape.push_back(dim.evaluate(symbols));
    const int bits = dtype_bits(entry.dtype);
    const int64_t bytes = packed_bytes(checked_elements({shape.begin(), shape.end()}, bits), bits);
    return insert(entry.key, Tensor(entry.dtype, shape, device_->take(bytes)));
  }
  Tensor made = materialize(*entry.source, pool);
  if (made.dtype() == DType::string) made = strings_->numbered(made.view(), make_blob);
  if (entry.layout) made = entry.layout->pack(made, pool);
  Tensor here = entry.layout ? upload_packed(*device_, made) : device_->upload(made);
  if (here.blob() != entry.source->source.blob()) {
    entry.source->drop_source();
  } else if (entry.written) {
    here = Tensor(made.dtype(), made.shape(), device_->take(made.bytes()));
    device_->write(device_->queue(Device::Use::compute), here.data(), made.data(), made.bytes());
  }
  insert(entry.key, std::move(here));
}

/// True if the caller must make the array, false if it exists. After a failure the next caller makes it.
bool Store::begin_making(const std::string& key) {
  std::unique_lock lock(mutex_);
  made_.wait(lock, [&] { return making_.count(key) == 0; });
  return arrays_.count(key) == 0 && making_.insert(key).second;
}

void Store::end_making(const std::string& key) {
  std::lock_guard lock(mutex_);
  making_.erase(key);
  made_.notify_all();
}

Tensor Store::find(const std::string& key) const {
  {
    std::lock_guard lock(mutex_);
    if (auto found = arrays_.find(key); found != arrays_.end()) return found->second;
  }
  return weights_ ? weights_->find(key) : Tensor();
}

Tensor Store::get(const std::string& key) const {
  Tensor found = find(key);
  if (!found.present()) throw Error(Code::internal, cat("the store has no array ", quote(key)));
  return found;
}

bool Store::has(const std::string& key) const { return find(key).present(); }

void Store::put(const std::string& key, Tensor tensor) { insert(key, device_->upload(tensor)); }

void Store::insert(const std::string& key, Tensor tensor) {
  std::lock_guard lock(mutex_);
  arrays_.insert_or_assign(key, std::move(tensor));
}

void Store::erase(const std::string& key) {
  std::lock_guard lock(mutex_);
  arrays_.erase(key);
}

int64_t Store::bytes() const {
  std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& [key, tensor] : arrays_) sum += tensor.bytes();
  return sum;
}

}  // namespace plait

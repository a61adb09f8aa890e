#include "core/exec/store.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

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
    if (!entry->source) {
      Shape shape;
      for (const Dim& dim : entry->dims) shape.push_back(dim.evaluate(symbols));
      put(entry->key, Tensor(entry->dtype, shape));
      continue;
    }
    Tensor made = materialize(*entry->source, pool);
    if (made.blob() != entry->source->source.blob()) entry->source->drop_source();
    put(entry->key, std::move(made));
    if (progress) progress->advance(entry->source->source_bytes());
  }
}

Tensor Store::get(const std::string& key) const {
  std::lock_guard lock(mutex_);
  auto found = arrays_.find(key);
  if (found == arrays_.end()) throw Error(Code::internal, cat("the store has no array ", quote(key)));
  return found->second;
}

bool Store::has(const std::string& key) const {
  std::lock_guard lock(mutex_);
  return arrays_.count(key) != 0;
}

void Store::put(const std::string& key, Tensor tensor) {
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

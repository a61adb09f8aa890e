#include "core/text/fast_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"

namespace plait {
namespace {

bool write_whole(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wxe");
  if (!file) return false;
  bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return (std::fclose(file) == 0) && written;
}

}  // namespace

std::string fast_cache_path(const std::string& directory, const std::string& cache_dir) {
  const std::string whole = real_path(directory).value_or(directory);
  char name[48];
  auto hash = static_cast<unsigned long long>(hash_of(whole));
  std::snprintf(name, sizeof name, "/tokenizer-%016llx.fast", hash);
  return cache_dir + name;
}

std::shared_ptr<Blob> read_fast_cache(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return nullptr;
  }
}

void write_fast_cache(const std::string& path, std::string_view fast) noexcept {
  try {
    static std::atomic<uint64_t> counter{0};
    make_directories(path.substr(0, path.rfind('/')));
    const std::string draft = cat(path, ".", int64_t{getpid()}, ".", counter++);
    if (!write_whole(draft, fast) || std::rename(draft.c_str(), path.c_str()) != 0) ::unlink(draft.c_str());
  } catch (...) {
    // The next load writes the cache.
  }
}

}  // namespace plait

#include "core/text/fast_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

bool write_whole(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wxe");
  if (!file) return false;
  bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return (std::fclose(file) == 0) && written;
}

}  // namespace

std::string fast_cache_path(const std::string& directory, const std::string& cache_dir) {
  std::error_code ignored;
  fs::path whole = fs::weakly_canonical(fs::absolute(directory, ignored), ignored);
  char name[48];
  auto hash = static_cast<unsigned long long>(hash_of(whole.string()));
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
    std::error_code error;
    fs::create_directories(fs::path(path).parent_path(), error);
    std::string draft = cat(path, ".", int64_t{getpid()}, ".", counter++);
    bool written = write_whole(draft, fast);
    if (written) fs::rename(draft, path, error);
    if (!written || error) fs::remove(draft, error);
  } catch (...) {
    // Out of memory for a path: the next load writes the cache.
  }
}

}  // namespace plait

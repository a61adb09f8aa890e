// Whatever a checkpoint's manifest contains, it is plait::Error or a checkpoint that can be read. The manifest has a checksum,
// which is no protection from those who forge it: it is put right here, so that the rest is reached.
#include "core/train/checkpoint/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/mapped_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace plait;
namespace fs = std::filesystem;

/// A whole checkpoint of two shards, whose manifest is what the file in memory holds.
struct Saved {
  fs::path folder = fs::temp_directory_path() / ("plait-fuzz-" + std::to_string(getpid()));
  std::string step = folder / "step-000001", manifest;
  fuzz::MemoryFile bytes;

  Saved() {
    const Tensor weights(DType::f32, Shape{2, 3}), moments(DType::u8, Shape{4});
    {
      CheckpointWriter first({.directory = folder, .writer = 0, .writers = 2}),
          second({.directory = folder, .writer = 1, .writers = 2});
      const CheckpointInfo info{1, "model", {{"data", "state"}}};
      first.save(info, {{"w", Shape{4, 3}, Shape{0, 0}, weights.view()}, {"m", Shape{4}, Shape{0}, moments.view()}});
      second.save(info, {{"w", Shape{4, 3}, Shape{2, 0}, weights.view()}});
      first.wait();
    }
    const fs::path path = fs::path(step) / "manifest.json";
    manifest = read_text_file(path);
    fs::remove(path);
    fs::create_symlink(bytes.path(), path);
  }
  ~Saved() { fs::remove_all(folder); }
};
const Saved& saved() {
  static const Saved out;
  return out;
}

std::string sealed(const std::string& text) {
  auto members = nlohmann::json::parse(text, nullptr, false);
  if (!members.is_object()) return text;
  members.erase("checksum");
  members["checksum"] = crc32c(members.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return members.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() { return {saved().manifest}; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = sealed({reinterpret_cast<const char*>(data), size});
  saved().bytes.set(text.data(), text.size());
  try {
    const Checkpoint read = Checkpoint::open(saved().step);
    for (const auto& [name, array] : read.arrays()) read.read(name);
    ++fuzz::accepted;
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}

// Whatever the bytes, a data file is plait::Error, or samples that keep what was asked for, and that fit into rows.
#include <filesystem>

#include "core/base/mapped_file.h"
#include "core/text/tokenizer.h"
#include "core/train/data/dataset.h"
#include "core/train/data/packing.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace plait;

/// The input under two names: what JSON lines are called, and another.
struct Files {
  fuzz::MemoryFile bytes;
  std::string lines = std::filesystem::temp_directory_path() / ("plait-fuzz-" + std::to_string(getpid()) + ".jsonl");
  Files() { std::filesystem::create_symlink(bytes.path(), lines); }
  ~Files() { std::filesystem::remove(lines); }
};
const Files& files() {
  static const Files out;
  return out;
}

const Tokenizer& tokenizer() {
  static const std::string folder = PLAIT_FIXTURES "/gemma3-standard23/";
  static const std::string json = read_text_file(folder + "tokenizer.json"),
                           config = read_text_file(folder + "tokenizer_config.json");
  static const Tokenizer out = Tokenizer::from_bytes({.tokenizer_json = json, .tokenizer_config = config});
  return out;
}

void check(const Dataset& data, const DatasetOptions& options) {
  std::vector<TrainingSample> samples;
  int64_t targets = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    samples.push_back(data[i]);
    targets += data[i].targets();
    bool right = data[i].inputs() >= 1 && data[i].inputs() <= options.seq && data[i].targets() >= 1;
    for (int32_t id : data[i].ids) right &= id >= 0 && id < options.vocabulary;
    if (!right) std::abort();
  }
  const PackedStep step = pack_step(samples, options.seq, 2);
  if (targets != data.targets() || step.targets != targets || step.tokens != data.inputs()) std::abort();
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() {
  const auto npy = [](const std::string& type, const std::string& shape, const std::string& data) {
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
    return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header + data;
  };
  return {npy("<i4", "(3,)", std::string("\1\0\0\0\2\0\0\0\3\0\0\0", 12)),
          npy("<i8", "(1, 2)", std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16)),
          "{\"text\": \"the river\"}\n\n{\"prompt\": \"a \", \"completion\": \"b\\n\"}\n",
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": []})",
          "plain text\n\nof some lines\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  files().bytes.set(data, size);
  const DatasetOptions options{.tokenizer = &tokenizer(), .seq = 64, .vocabulary = 512, .cut_long = true};
  for (const std::string& path : {files().lines, files().bytes.path()}) {
    try {
      check(Dataset::read(path, options), options);
      ++fuzz::accepted;
    } catch (const Error& error) {
      fuzz::check_error(error);
    }
  }
  return 0;
}

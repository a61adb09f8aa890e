// Whatever the bytes, an adapter's two files give one that a generator has room for, in whole, or plait::Error.
#include "core/train/adapters/adapter_file.h"

#include <cmath>
#include <filesystem>

#include "core/base/mapped_file.h"
#include "core/generate/adapter_slots.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace plait::fuzz {
namespace {

constexpr char border = '\x1e';  ///< between the configuration and the tensors

/// A directory whose two files are in memory.
class Directory {
 public:
  Directory() {
    path_ = (std::filesystem::temp_directory_path() / "plait-fuzz-XXXXXX").string();
    if (!mkdtemp(path_.data())) std::abort();
    std::filesystem::create_symlink(config.path(), path_ + "/adapter_config.json");
    std::filesystem::create_symlink(tensors.path(), path_ + "/adapter_model.safetensors");
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  MemoryFile config, tensors;

 private:
  std::string path_;
};

const Directory& directory() {
  static const Directory out;
  return out;
}

const Decoder& decoder() {
  static const Decoder out = [] {
    Decoder made;
    made.adapted = {{"layers.0.q", 6, 4}, {"layers.0.v", 6, 2}};
    made.adapter_slots = 1;
    made.adapter_rank = 3;
    made.layers = {{.query_heads = 2, .kv_heads = 2, .key_size = 3, .value_size = 3}};
    return made;
  }();
  return out;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  const std::string where = directory().path() + "/seed";
  auto counted = [](const Shape& shape) {
    Tensor numbers(DType::f32, shape);
    for (int64_t i = 0; i < numbers.elements(); ++i) numbers.as<float>()[i] = 0.5f * static_cast<float>(i);
    return numbers;
  };
  auto add = [&](const AdapterWeights& adapter) {
    write_adapter(adapter, where, "base");
    out.push_back(read_text_file(where + "/adapter_config.json") + border +
                  read_text_file(where + "/adapter_model.safetensors"));
  };
  for (int64_t rank : {1, 3}) {
    AdapterWeights adapter{.rank = rank, .alpha = 8};
    for (const AdaptedLinear& one : decoder().adapted)
      adapter.modules[one.module] = {counted({rank, one.k}), counted({one.n, rank})};
    add(adapter);
  }
  AdapterWeights prefix;
  prefix.prefix_shape = prefix_shape(decoder());
  prefix.prefix = counted(prefix.prefix_shape.dims(5));
  add(prefix);
  return out;
}

}  // namespace plait::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.find(fuzz::border), size), next = std::min(end + 1, size);
  fuzz::directory().config.set(data, end);
  fuzz::directory().tensors.set(data + next, size - next);
  try {
    const AdapterWeights adapter = read_adapter(fuzz::directory().path());
    AdapterSlots slots(fuzz::decoder());
    const auto taken = slots.take("it", adapter);
    double sum = 0;
    for (size_t index = 0; index < fuzz::decoder().adapted.size(); ++index) {
      const auto [a, b] = slots.rows(index, adapter);
      for (const Tensor* half : {&a, &b})
        for (int64_t i = 0; i < half->elements(); ++i) sum += half->as<float>()[i];
    }
    const PagesOfPrefix pages(fuzz::decoder(), adapter, 4);
    for (int64_t page = 0; 4 * page < taken->prefix; ++page)
      for (const bool values : {false, true}) {
        const Tensor row = pages.row(0, page, values);
        for (int64_t i = 0; i < row.elements(); ++i) sum += row.as<float>()[i];
      }
    if (std::isnan(sum) || slots.find(taken->contents) != taken) std::abort();
    ++fuzz::accepted;
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}

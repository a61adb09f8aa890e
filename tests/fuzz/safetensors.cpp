// Whatever the bytes, the reader of safetensors throws plait::Error or gives tensors that lie within the file.
#include "core/base/safetensors.h"

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace {

const plait::fuzz::MemoryFile& file() {
  static const plait::fuzz::MemoryFile out;
  return out;
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() {
  const auto row = [](const std::string& type, const std::string& shape, const std::string& range) {
    return "{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + range + "}";
  };
  std::vector<std::string> out;
  for (const auto& [header, data] :
       {std::pair<std::string, size_t>{"{}", 0},
        {"{\"a\":" + row("F32", "[2,1]", "[0,8]") + ",\"b\":" + row("BF16", "[]", "[8,10]") + "}", 10},
        {"{\"__metadata__\":{\"k\":\"v\"},\"x\":" + row("I8", "[0,7]", "[0,0]") +
             ",\"y\":" + row("BOOL", "[3]", "[0,3]") + "}    ",
         3}}) {
    const uint64_t length = header.size();
    out.push_back(std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\1'));
  }
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  file().set(data, size);
  try {
    const SafeTensors read = SafeTensors::open(file().path());
    uint64_t bytes = read.header().size();
    for (const auto& [name, entry] : read.entries()) {
      const Tensor tensor = read.tensor(name);
      if (tensor.bytes() && tensor.data()[0] == tensor.data()[tensor.bytes() - 1]) ++fuzz::accepted;
      bytes += static_cast<uint64_t>(tensor.bytes());
    }
    if (bytes != size) std::abort();  // every byte belongs to one
    ++fuzz::accepted;
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}

#pragma once
// Makes GGUF files.
#include <cstring>
#include <string>
#include <vector>

#include "importers/gguf/gguf_file.h"

namespace plait::test {

class GgufWriter {
 public:
  void integer(const std::string& key, uint32_t value) { head(key, 4), put(value); }
  void real(const std::string& key, float value) { head(key, 6), put(value); }
  void text(const std::string& key, const std::string& value) { head(key, 8), put_text(value); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    head(key, 9), put(uint32_t{8}), put(uint64_t{values.size()});
    for (const std::string& one : values) put_text(one);
  }
  template <class T>  // int32_t or float
  void numbers(const std::string& key, const std::vector<T>& values) {
    head(key, 9), put(uint32_t{std::is_same_v<T, float> ? 6 : 5}), put(uint64_t{values.size()});
    for (const T one : values) put(one);
  }
  /// `sizes` row-major; `bytes` in blocks of the type.
  void tensor(const std::string& name, gguf::Type type, const std::vector<int64_t>& sizes, const std::string& bytes) {
    tensors_.push_back({name, type, sizes, bytes});
  }
  void floats(const std::string& name, const std::vector<int64_t>& sizes, const std::vector<float>& values) {
    tensor(name, gguf::Type::f32, sizes,
           {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string bytes() const {
    GgufWriter out;
    out.out_ = "GGUF";
    out.put(uint32_t{3}), out.put(uint64_t{tensors_.size()}), out.put(uint64_t{values_});
    out.out_ += out_;
    uint64_t offset = 0;
    for (const auto& one : tensors_) {
      out.put_text(one.name), out.put(static_cast<uint32_t>(one.sizes.size()));
      for (auto size = one.sizes.rbegin(); size != one.sizes.rend(); ++size) out.put(static_cast<uint64_t>(*size));
      out.put(static_cast<uint32_t>(one.type)), out.put(offset);
      offset += (one.bytes.size() + 31) / 32 * 32;
    }
    const auto align = [&] { out.out_.append((32 - out.out_.size() % 32) % 32, '\0'); };
    for (const auto& one : tensors_) align(), out.out_ += one.bytes;
    return out.out_;
  }

 private:
  struct Part {
    std::string name;
    gguf::Type type;
    std::vector<int64_t> sizes;
    std::string bytes;
  };
  template <class T>
  void put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const std::string& text) { put(uint64_t{text.size()}), out_ += text; }
  void head(const std::string& key, uint32_t kind) { put_text(key), put(kind), ++values_; }

  std::string out_;
  uint64_t values_ = 0;
  std::vector<Part> tensors_;
};

}  // namespace plait::test

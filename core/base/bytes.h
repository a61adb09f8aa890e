#pragma once
// Serialisation of numbers and lists, for messages between ranks and saved state. Native byte order.
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

class ByteWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(&value, sizeof value);
  }
  /// The count, then the elements.
  template <class T>
  void put_list(std::span<const T> values) {
    put(static_cast<uint64_t>(values.size()));
    put_bytes(values.data(), values.size_bytes());
  }
  template <class T>
  void put_list(const std::vector<T>& values) {
    put_list(std::span<const T>(values));
  }
  void put_text(std::string_view text) { put_list(std::span<const char>(text)); }
  void put_bytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  /// `what` the bytes are, and `hint`, for errors; both must outlive the reader.
  ByteReader(std::span<const std::byte> bytes, std::string_view what, std::string_view hint = {})
      : bytes_(bytes), what_(what), hint_(hint) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T out;
    get_bytes(&out, sizeof out);
    return out;
  }
  template <class T>
  std::vector<T> get_list() {
    const auto count = get<uint64_t>();
    if (count > bytes_.size() / sizeof(T)) fail("is truncated");
    std::vector<T> out(count);
    get_bytes(out.data(), count * sizeof(T));
    return out;
  }
  std::string get_text() {
    const std::vector<char> letters = get_list<char>();
    return {letters.begin(), letters.end()};
  }
  void get_bytes(void* data, size_t size) {
    std::span<const std::byte> from = get_span(size);
    if (size) std::memcpy(data, from.data(), size);
  }
  std::span<const std::byte> get_span(size_t size) {
    if (size > bytes_.size()) fail("is truncated");
    const std::span<const std::byte> out = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return out;
  }
  std::span<const std::byte> get_rest() { return get_span(bytes_.size()); }
  bool at_end() const { return bytes_.empty(); }
  /// Throws Error(bad_model): "<what> <fault>".
  [[noreturn]] void fail(std::string_view fault) const {
    throw Error(Code::bad_model, cat(what_, " ", fault), std::string(hint_));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view what_, hint_;
};

}  // namespace plait

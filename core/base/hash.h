#pragma once
// The hash of names and fingerprints, equal in every build on machines of one byte order. Not for checksums of files
// (crc32c.h), nor for random bits and chains of numbers (mixed_bits in counter_random.h). Inputs are short, so its speed
// does not matter.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace plait {

/// In words of 64 bits: xor, rotate, multiply by FNV's prime. Texts and bytes are prefixed with their lengths.
class Hasher {
 public:
  void add(uint64_t word) { hash_ = std::rotl(hash_ ^ word, 23) * 0x100000001b3u; }
  void add(std::string_view text) { add(text.data(), text.size()); }
  void add(const void* data, size_t bytes) {
    add(uint64_t{bytes});
    const auto* from = static_cast<const std::byte*>(data);
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, from + at, std::min(sizeof word, bytes - at));
      add(word);
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

inline uint64_t hash_of(std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  return hasher.value();
}

}  // namespace plait

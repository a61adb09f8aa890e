#include "core/base/crc32c.h"

#include <array>
#include <cstring>

namespace plait {
namespace {

/// tables[k][b]: what a byte b does to the checksum k + 1 bytes later. Eight of them take eight bytes a step ("slicing by
/// 8": Kounavis and Berry, A Systematic Approach to Building High Performance Software-Based CRC Generators, 2005).
constexpr auto tables = [] {
  std::array<std::array<uint32_t, 256>, 8> out{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0u);
    out[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) out[k][byte] = out[k - 1][byte] >> 8 ^ out[0][out[k - 1][byte] & 0xFF];
  return out;
}();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][word >> 8 * k & 0xFF];
  }
  for (; left; ++at, --left) crc = crc >> 8 ^ tables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xFF];
  return ~crc;
}

}  // namespace plait

#pragma once
// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: of the bytes "123456789" it is E3069283.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace plait {

/// The checksum of `bytes` after those with checksum `before`: crc32c(b, crc32c(a)) is that of a and b concatenated.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
inline uint32_t crc32c(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

}  // namespace plait

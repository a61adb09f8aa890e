#pragma once
// A rank's reply to rank 0 (World::report): a result or an error.
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace plait {

std::vector<std::byte> error_report(const Error& error);
std::vector<std::byte> ok_report(ByteWriter bytes = {});
/// Reads a report: returns the bytes of `ok_report`, or throws the error of `error_report`, prefixed with the rank.
ByteReader read_report(std::span<const std::byte> bytes, int64_t rank = 0);

/// The current exception as an Error; call it in a catch (...). Without memory for a copy it is out_of_memory.
Error current_error() noexcept;

}  // namespace plait

#pragma once
// What a rank answers rank 0 (World::report): an error, or what it was asked for.
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"

namespace plait {

std::vector<std::byte> error_report(const Error& error);
std::vector<std::byte> ok_report(ByteWriter bytes = {});
/// What `ok_report` was given. Throws what `error_report` was given, with the rank in front.
ByteReader read_report(std::span<const std::byte> bytes, int64_t rank = 0);

/// The error behind the exception at hand: for use in a catch (...).
Error current_error();

}  // namespace plait

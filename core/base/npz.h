#pragma once
// Archives of NumPy's arrays (numpy.savez): ZIP files whose members are .npy files.
#include <memory>
#include <string_view>

#include "core/base/tensor.h"

namespace plait {

/// The bytes of array `name`, those of an .npy file, as a copy. Throws Error: bad_model (damaged), not_found (no such array; it names
/// those there are), unsupported (a compressed array, or an archive of 4 GB or more).
std::shared_ptr<const Blob> npz_member(const Blob& archive, std::string_view name);

}  // namespace plait

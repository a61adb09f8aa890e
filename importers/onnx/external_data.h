#pragma once
#include <functional>
#include <memory>
#include <string>

#include "core/base/tensor.h"

namespace plait {

/// The bytes of the external data file `location`: a relative POSIX path without "..", already checked. Called once
/// per file. Throws Error(not_found) if there is none.
using ExternalResolver = std::function<std::shared_ptr<const Blob>(const std::string& location)>;

}  // namespace plait

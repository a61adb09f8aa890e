#pragma once
#include <memory>
#include <string>

#include "core/base/tensor.h"

namespace plait {

/// A file in memory.
struct NamedBlob {
  std::string name;
  std::shared_ptr<const Blob> blob;
};

}  // namespace plait

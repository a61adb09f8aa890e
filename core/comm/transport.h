#pragma once
#include <string>

namespace plait {

/// A communicator of arrays on devices, which has more than one way to move them.
class HasTransport {
 public:
  virtual ~HasTransport() = default;
  /// For reports: "peer memory", "NCCL" or "host memory", and why none of those before it.
  virtual std::string transport() const = 0;
};

}  // namespace plait

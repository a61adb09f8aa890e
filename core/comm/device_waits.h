#pragma once

namespace plait {

/// A communicator whose ranks also wait for devices, which wait for other ranks' devices.
class SeesDeviceWaits {
 public:
  virtual ~SeesDeviceWaits() = default;
  /// Called again and again by a thread that waits for its device, with the seconds since the wait began, 0 first; once more with a
  /// negative number when it has ended. After CommOptions::deadline_s ends the world if a rank has neither done nor awaited anything
  /// for as long, and names it. Thread-safe.
  virtual void note_device_wait(double waited_s) noexcept = 0;
};

}  // namespace plait

#pragma once
// TensorBoard's event files: records of a length, the protobuf message Event, and masked checksums of both
// (tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto).
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/file_writer.h"

namespace plait {

/// A record: length (u64), its checksum, the bytes, their checksum; little-endian.
std::string event_record(std::string_view event);

/// The format's masked CRC-32C: masked since a CRC of bytes that contain CRCs is weak.
uint32_t masked_crc(std::string_view bytes);

/// Not thread-safe. Throws Error(io).
class EventFile {
 public:
  /// Creates a file in `directory` under a name that TensorBoard finds. With `step` > 0 TensorBoard drops later steps
  /// of earlier files.
  EventFile(const std::string& directory, int64_t step);

  /// Scalars of a step, by name ("loss/train").
  void write(int64_t step, std::span<const std::pair<std::string_view, double>> values);

 private:
  FileWriter file_;
};

}  // namespace plait

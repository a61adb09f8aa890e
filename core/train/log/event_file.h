#pragma once
// TensorBoard's event files: records of a length, the protobuf message Event, and masked checksums of both
// (tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto).
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/train/checkpoint/file_writer.h"

namespace plait {

/// A record: length (u64), its checksum, the bytes, their checksum; little-endian.
std::string event_record(std::string_view event);

/// The masked CRC-32C of the format: a checksum of bytes that hold checksums themselves is a weak one.
uint32_t masked_crc(std::string_view bytes);

/// For one thread at a time. Everything throws Error(io).
class EventFile {
 public:
  /// A new file in `directory`, with a name that TensorBoard looks for. With `step` above 0 TensorBoard drops what earlier
  /// files of the directory say about later steps.
  EventFile(const std::string& directory, int64_t step);

  /// Numbers of a step, by name ("loss/train").
  void write(int64_t step, std::span<const std::pair<std::string_view, double>> values);

 private:
  FileWriter file_;
};

}  // namespace plait

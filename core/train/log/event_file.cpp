#include "core/train/log/event_file.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "core/base/crc32c.h"
#include "core/base/text.h"

namespace plait {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// events.out.tfevents.SECONDS.HOST.PID.NUMBER
std::string file_path(const std::string& directory) {
  static std::atomic<int64_t> number{0};  // distinguishes files that a process creates within one second
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return cat(directory, "/events.out.tfevents.", static_cast<int64_t>(wall_time()), ".", host, ".", int64_t{getpid()},
             ".", number++);
}

template <class T>
std::string bytes_of(T number) {
  std::string out(sizeof number, '\0');
  std::memcpy(out.data(), &number, sizeof number);
  return out;
}

// Fields of a protobuf message: a tag (number and wire type), then the value.
constexpr uint64_t varint_type = 0, fixed64_type = 1, length_type = 2, fixed32_type = 5;

std::string varint(uint64_t number) {
  std::string out;
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  return out += static_cast<char>(number);
}
std::string tag(uint64_t field, uint64_t type) { return varint(field << 3 | type); }
std::string number_field(uint64_t field, int64_t value) {
  return tag(field, varint_type) + varint(static_cast<uint64_t>(value));
}
std::string bytes_field(uint64_t field, std::string_view bytes) {
  return tag(field, length_type) + varint(bytes.size()) + std::string(bytes);
}

/// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
std::string event(int64_t step, std::string_view content) {
  return tag(1, fixed64_type) + bytes_of(wall_time()) + number_field(2, step) + std::string(content);
}

}  // namespace

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

std::string event_record(std::string_view event) {
  const std::string length = bytes_of(uint64_t{event.size()});
  return length + bytes_of(masked_crc(length)) + std::string(event) + bytes_of(masked_crc(event));
}

EventFile::EventFile(const std::string& directory, int64_t step) : file_(file_path(directory)) {
  file_.write(event_record(event(0, bytes_field(3, "brain.Event:2"))));
  // SessionLog { SessionStatus status = 1; }, 1 being START
  if (step > 0) file_.write(event_record(event(step + 1, bytes_field(7, number_field(1, 1)))));
}

void EventFile::write(int64_t step, std::span<const std::pair<std::string_view, double>> values) {
  std::string summary;  // repeated Value value = 1; Value { string tag = 1; float simple_value = 2; }
  for (const auto& [name, value] : values)
    summary += bytes_field(1, bytes_field(1, name) + tag(2, fixed32_type) + bytes_of(static_cast<float>(value)));
  file_.write(event_record(event(step, bytes_field(5, summary))));
}

}  // namespace plait

#pragma once
// Commands that rank 0 broadcasts: one byte for the type, then the fields.
#include <cstdint>

#include "core/ranks/fields.h"

namespace plait {

/// Ends the command loop of all ranks, for every kind of engine.
constexpr uint8_t end_command = 0;

/// Splits the world into the groups of the programs, collectively; for every kind of engine.
struct JoinGroups {};

inline ByteReader command_reader(std::span<const std::byte> message) { return {message, "a command of rank 0"}; }

/// The commands of one kind of engine. Each is a struct (fields.h); its byte is its index in the list plus one.
template <class... Commands>
class CommandSet {
 public:
  template <class Command>
  static std::vector<std::byte> encode(const Command& command) {
    static_assert((std::is_same_v<Command, Commands> || ...), "the command is in the list");
    ByteWriter out;
    out.put(byte_of<Command>());
    put_fields(out, command);
    return out.take();
  }

  /// Decodes a command and calls handler.handle(command). Views in it refer to the message.
  template <class Handler>
  static void dispatch(ByteReader& in, Handler& handler) {
    const auto byte = in.get<uint8_t>();
    const bool known = ((byte == byte_of<Commands>() && (handler.handle(get_field<Commands>(in)), true)) || ...);
    if (!known) in.fail("is unknown");
  }

 private:
  template <class Command>
  static constexpr uint8_t byte_of() {
    uint8_t byte = 0, found = 0;
    ((++byte, found = std::is_same_v<Command, Commands> ? byte : found), ...);
    return found;
  }
};

}  // namespace plait

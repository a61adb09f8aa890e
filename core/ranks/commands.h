#pragma once
// What rank 0 broadcasts: a byte for the command, then its fields.
#include <cstdint>

#include "core/ranks/fields.h"

namespace plait {

/// Ends the loop of every rank that serves, whatever its engine is.
constexpr uint8_t end_command = 0;

/// Of every kind of engine: split the world into the groups of the programs, which all ranks do at once.
struct JoinGroups {};

inline ByteReader command_reader(std::span<const std::byte> message) { return {message, "a command of rank 0"}; }

/// The commands of one kind of engine. Each is a struct (fields.h), and its place in the list plus one is its byte.
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

  /// Reads a command and calls handler.handle(command). What it views stays in the message.
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

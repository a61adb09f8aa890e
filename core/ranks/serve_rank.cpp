#include "core/ranks/serve_rank.h"

#include "core/ranks/commands.h"

namespace plait {
namespace {

bool is_end(std::span<const std::byte> command) { return command_reader(command).get<uint8_t>() == end_command; }

}  // namespace

void refuse_rank(World& world, const Error& why) {
  world.report(error_report(why));
  while (!is_end(world.next_command())) {  // ignores commands until the end
  }
}

void serve_rank(World& world, FunctionRef<std::unique_ptr<RankHandler>()> make) {
  std::unique_ptr<RankHandler> handler;
  try {
    handler = make();
    report_ok(world, handler->programs());
  } catch (...) {
    return refuse_rank(world, current_error());
  }
  try {
    while (true) {
      const std::vector<std::byte> command = world.next_command();
      if (is_end(command)) return;
      ByteReader in = command_reader(command);
      handler->handle(in);
    }
  } catch (...) {
    world.communicator().abort(current_error().message());
    throw;
  }
}

void report_result(World& world, FunctionRef<void()> task) {
  try {
    task();
  } catch (...) {
    world.report(error_report(current_error()));
  }
}

}  // namespace plait

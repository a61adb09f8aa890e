// Whatever the file, reading and compiling it ends in programs or in plait::Error, within the room that compiling has.
#include "core/passes/compile.h"
#include "tests/fuzz/fixture_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/models.h"

std::vector<std::string> plait::fuzz::seeds() { return fixture_files(); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  const test::World& world = test::World::get();
  auto bytes = copy_blob({reinterpret_cast<const std::byte*>(data), size});
  auto resolver = [&](const std::string&) -> std::shared_ptr<const Blob> { return bytes; };
  Graph graph;
  try {
    graph = import_bytes(bytes, resolver, world.ops).graph;
    compile_plain(graph, world.options());
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  try {
    recognise(graph, world.options());
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}

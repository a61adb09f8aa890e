// Whatever the file, compiling it ends in programs or in plait::Error, within the room that compiling has.
#include "core/passes/compile.h"
#include "tests/fuzz/fixture_files.h"
#include "tests/unit/support/models.h"

std::vector<std::string> plait::fuzz::seeds() { return fixture_files(); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  const test::World& world = test::World::get();
  Graph graph;
  try {
    graph = fuzz::model_of(data, size, world.ops).graph;
  } catch (const Error& error) {
    fuzz::check_error(error);
    return 0;
  }
  try {
    compile_plain(graph, world.options());
    ++fuzz::accepted;
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

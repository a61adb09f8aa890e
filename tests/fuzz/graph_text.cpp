// Whatever the text, the reader of graphs throws plait::Error or makes a graph that reads back from its own text; and what
// the verifier accepts of these, the passes compile or refuse.
#include "core/passes/compile.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/graph/sample_text.h"
#include "tests/unit/support/models.h"

std::vector<std::string> plait::fuzz::seeds() {
  return {test::sample_text,
          R"(graph "small"
input %0 "x" : f32[b, 4]
const %1 "w" = inline : f32[4, 2] = 1 2 3 4 5 6 7 8
const %2 = inline : i64[2] = 0 -1
const %3 = inline : i64[1] = 3
const %4 = inline : f32[] = 0.5
const %9 = inline : i64[] = 0
const %10 = inline : i64[] = 5
const %11 = inline : i64[] = 1
node "m" : %5 : ?[...] = MatMul(%0, %1)
node "r" : %6 : ?[...] = Reshape(%5, %2)
node "c" : %7 : f32[3] = Expand(%4, %3)
node "n" : %8 : i64[...] = Range(%9, %10, %11)
node "s" : %12 : ?[...] = Softmax(%6) axis=-1
node "t" : %13 : ?[...] = Tile(%7, %3)
node "g" : %14 : ?[...] = Gather(%13, %8) axis=0
output %12
output %14
)",
          R"(graph "loop"
input %0 "x" : f32[2]
const %1 = inline : i64[] = 4
const %2 = inline : bool[] = 1
node "l" : %3 : ?[...] , %4 : ?[...] = Loop(%1, %2, %0) carried=1
body "body" {
  input %0 "i" : i64[]
  input %1 "more" : bool[]
  input %2 "in" : f32[2]
  node "" : %3 : f32[2] = Neg(%2)
  output %1
  output %3
  output %3
}
output %3
output %4
)"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  Graph graph;
  try {
    graph = parse_graph({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    fuzz::check_error(error);
    return 0;
  }
  // Values are numbered as they come: in whatever order the input had them, the second text has them in that of texts.
  std::string once, twice;
  try {
    once = text(parse_graph(text(graph, INT64_MAX)), INT64_MAX);
    twice = text(parse_graph(once), INT64_MAX);
  } catch (const Error& error) {
    twice = error.message();
  }
  if (once != twice) {
    std::fprintf(stderr, "the text reads back otherwise:\n%s\n%s\n", once.c_str(), twice.c_str());
    std::abort();
  }
  ++fuzz::accepted;
  try {
    verify(graph, "reading");
  } catch (const Error&) {
    return 0;  // no graph that passes would be given
  }
  try {
    compile_plain(graph, test::World::get().options());
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}

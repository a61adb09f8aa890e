// Loads report their progress, and end where they are cancelled: in the reader, in any pass, before the weights.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

/// What loading the fixture ends with when it is cancelled after that pass.
Code cancelled_after(const std::string& name, std::string_view pass) {
  LoadProgress progress;
  CompileOptions options = World::get().options();
  options.dump = [&](std::string_view done, const Graph&) {
    if (done == pass) progress.cancel();
  };
  try {
    make_engine(fixture_graph(name), options, small_engine(), &progress);
    return Code::ok;
  } catch (const Error& error) {
    EXPECT_LT(progress.fraction(), 0.3) << "the weights were loaded all the same";
    return error.code();
  }
}

TEST(Progress, OfAnEngineGrowsToOne) {
  LoadProgress progress;
  CompileOptions options = World::get().options();
  std::vector<double> seen;
  options.dump = [&](std::string_view, const Graph&) { seen.push_back(progress.fraction()); };
  make_engine(fixture_graph("gemma3-optimum18"), options, small_engine(), &progress);
  ASSERT_GE(seen.size(), 4u);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i], seen[i - 1]);
  EXPECT_GT(seen[0], 0);
  EXPECT_LT(seen.back(), 1);
  EXPECT_EQ(progress.fraction(), 1);
}

TEST(Progress, ACancelEndsTheWorkInAnyPass) {
  for (const char* pass : {"interface", "fold", "raise", "fuse"})
    EXPECT_EQ(cancelled_after("gemma3-optimum18", pass), Code::cancelled) << pass;
  EXPECT_EQ(cancelled_after("gemma3-optimum18", "none"), Code::ok);
}

TEST(Progress, ACancelEndsTheImport) {
  LoadProgress progress;
  std::string path = fixture("llama-standard23");
  auto resolver = [&](const std::string& location) -> std::shared_ptr<const Blob> {
    progress.cancel();  // the file that the weights are in is asked for in the middle
    return map_beside(path, location);
  };
  try {
    import_bytes(map_file(path), resolver, World::get().ops, &progress);
    FAIL() << "the import went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::cancelled);
  }
  LoadProgress whole;
  import_file(path, World::get().ops, &whole);
  EXPECT_EQ(whole.fraction(), 1);
}

}  // namespace
}  // namespace plait::test

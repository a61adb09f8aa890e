// Work on a thread of its own: waiting, progress, calling off.
#include "bindings/c/loading.h"

#include <gtest/gtest.h>

namespace plait::c_api::test {
namespace {

Code code_of(const Loading<int>& loading) {
  try {
    loading.get();
    return Code::ok;
  } catch (const Error& error) {
    return error.code();
  }
}

TEST(Loading, GivesItsResultAndProgress) {
  std::promise<void> half, go_on;
  Loading<int> loading([&](LoadProgress& progress) {
    progress.stage(0.5, 10);
    progress.advance(10);
    half.set_value();
    go_on.get_future().wait();
    progress.stage(1, 1);
    progress.advance();
    return 7;
  });
  EXPECT_EQ(loading.progress(), 0);
  loading.start();
  half.get_future().wait();
  EXPECT_NEAR(loading.progress(), 0.5, 0.01);
  EXPECT_FALSE(loading.wait(10));
  go_on.set_value();
  EXPECT_EQ(loading.get(), 7);
  EXPECT_EQ(loading.progress(), 1);
  loading.cancel();
  loading.start();
  EXPECT_EQ(loading.get(), 7);
}

TEST(Loading, FailsWithWhatTheWorkThrows) {
  Loading<int> loading([](LoadProgress&) -> int { throw Error(Code::bad_model, "damaged"); });
  loading.start();
  EXPECT_EQ(code_of(loading), Code::bad_model);
}

TEST(Loading, CancelWakesThoseWhoWaitThoughTheWorkGoesOn) {
  std::promise<void> at_work, release;
  Loading<int> loading([&](LoadProgress&) {
    at_work.set_value();
    release.get_future().wait();
    return 1;
  });
  loading.start();
  at_work.get_future().wait();
  auto waiting = std::async(std::launch::async, [&] { return code_of(loading); });
  loading.cancel();
  EXPECT_EQ(waiting.get(), Code::cancelled);
  release.set_value();
  EXPECT_EQ(code_of(loading), Code::cancelled);
}

TEST(Loading, ItsEndCallsTheWorkOff) {
  std::atomic<bool> cancelled{false};
  {
    std::promise<void> at_work;
    Loading<int> loading([&](LoadProgress& progress) -> int {
      at_work.set_value();
      try {
        while (true) progress.check();
      } catch (const Error& error) {
        cancelled = error.code() == Code::cancelled;
        throw;
      }
    });
    loading.start();
    at_work.get_future().wait();
  }
  EXPECT_TRUE(cancelled);
}

TEST(Loading, CancelLeavesAloneWhatHasNotBegun) {
  Loading<int> loading([](LoadProgress&) { return 3; });
  loading.cancel();
  loading.start();
  EXPECT_EQ(loading.get(), 3);
}

}  // namespace
}  // namespace plait::c_api::test

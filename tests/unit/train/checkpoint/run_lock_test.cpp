// One run at a time writes to a directory.
#include "core/train/checkpoint/run_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "core/train/data/document_encoder.h"
#include "core/train/trainer.h"
#include "tests/unit/support/models.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

TEST(RunLock, IsOneAtATime) {
  const Folder folder;
  const std::string run = folder.path("a/run");
  {
    const RunLock first(run);
    expect_error([&] { RunLock second(run); }, Code::invalid_argument, run, cat("process ", getpid()));
    const RunLock other(folder.path("b"));
  }
  const RunLock again(run);
}

TEST(RunLock, LeavesNothingOfARunThatCameToNothing) {
  const Folder folder;
  { const RunLock failed(folder.path("made")); }
  EXPECT_FALSE(std::filesystem::exists(folder.path("made")));
  std::filesystem::create_directory(folder.path("there"));
  { const RunLock failed(folder.path("there")); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("there")));
}

/// A name that leads nowhere can neither be opened nor made, however often.
TEST(RunLock, GivesUpWhereItCannotBe) {
  const Folder folder;
  std::filesystem::create_symlink(folder.path("gone/run.lock"), folder.path("run.lock"));
  expect_error([&] { RunLock lock(folder.path()); }, Code::io, "run.lock");
}

/// Who waits for nothing, and comes while the holder goes, finds the name or makes it: never do two have it.
TEST(RunLock, IsOneAtATimeWhileItComesAndGoes) {
  const Folder folder;
  std::atomic<int> inside{0}, entered{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) try {
          const RunLock held(folder.path("run"));
          if (++inside != 1) ++wrong;
          ++entered;
          --inside;
        } catch (const Error& error) {
          if (error.code() != Code::invalid_argument) ++wrong;
        }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(entered, 0);
}

TEST(RunLock, GoesWithAProcessThatIsKilled) {
  const Folder folder;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock held(folder.path());
    if (write(ends[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char ready;
  ASSERT_EQ(read(ends[0], &ready, 1), 1);
  expect_error([&] { RunLock second(folder.path()); }, Code::invalid_argument, cat("process ", child));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const RunLock now(folder.path());
}

/// Also one that would go on with the first, and before the model is compiled.
TEST(RunLock, KeepsASecondTrainerOut) {
  const Folder folder;
  ThreadPool pool(1);
  const auto trainer = [&](bool resume, const Graph& graph) {
    TrainerOptions options;
    options.training.row_tokens = 16;
    options.rate = {.peak = 1e-3, .schedule = RateSchedule::constant};
    options.steps = 1;
    options.batch = 1;
    options.directory = folder.path();
    options.resume = resume;
    return std::make_unique<Trainer>(graph, World::get().options(), options,
                                     Dataset::of({{{3, 4, 5, 6}, {}}}, {.seq = 16}), std::nullopt, pool);
  };
  auto first = trainer(false, fixture_graph("gpt2-optimum18"));
  for (const bool resume : {false, true})
    expect_error([&] { trainer(resume, Graph{}); }, Code::invalid_argument, "has a run under way");
  first->run();  // when it has ended it may be gone on with, though the trainer is still there
  expect_error([&] { trainer(false, Graph{}); }, Code::invalid_argument, "holds a run already");
  EXPECT_EQ(trainer(true, fixture_graph("gpt2-optimum18"))->steps_done(), 1);
}

}  // namespace
}  // namespace plait::test

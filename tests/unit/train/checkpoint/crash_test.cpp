// Checkpoints of a process that is killed at any moment, and on a disk that is full.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <random>
#include <thread>

#include "tests/unit/train/checkpoint/saved_run.h"

namespace plait {
namespace {

using test::Folder;

constexpr int64_t writers = 2;

int64_t newest_step(const std::string& folder) {
  const std::vector<std::string> all = list_checkpoints(folder);
  return all.empty() ? 0 : Checkpoint::open(all.back()).info().step;
}

/// Saves one step after the other until it is killed, and reports through the pipe which are done.
[[noreturn]] void save_for_ever(const std::string& folder, int done) {
  try {
    std::vector<std::unique_ptr<CheckpointWriter>> all;
    for (int64_t i = 0; i < writers; ++i)
      all.push_back(std::make_unique<CheckpointWriter>(
          CheckpointOptions{.directory = folder, .writer = i, .writers = writers, .keep = 2}));
    for (int64_t step = newest_step(folder) + 1;; ++step) {
      for (int64_t i = 0; i < writers; ++i)
        all[static_cast<size_t>(i)]->save(test::info_of(step), test::blocks_of(step, i, writers, {0, 1, 2}).blocks,
                                          step % 3 == 0);
      all[0]->wait();
      if (write(done, &step, sizeof step) != sizeof step) _exit(2);
    }
  } catch (const std::exception&) {
    _exit(1);
  }
}

TEST(Crash, AKillAtAnyMomentLeavesAWholeCheckpoint) {
  const Folder folder;
  std::mt19937 random(5);
  int64_t reached = 0;
  int after_kill = 0;  // rounds that left something half done
  for (int round = 0; round < 50; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder.path(), ends[1]);
    close(ends[1]);
    int64_t done = 0;
    // The first one of a round is there; then any moment will do.
    ASSERT_EQ(read(ends[0], &done, sizeof done), static_cast<ssize_t>(sizeof done));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child ended by itself: " << status;
    for (int64_t step; read(ends[0], &step, sizeof step) == sizeof step;) done = step;
    close(ends[0]);
    EXPECT_GT(done, reached) << "a run continues after the newest checkpoint";
    reached = newest_step(folder.path());
    // The one after the last that was reported may have been finished, too.
    EXPECT_TRUE(reached == done || reached == done + 1) << done << " was saved, " << reached << " is the newest";
    for (const std::string& path : list_checkpoints(folder.path())) test::check_checkpoint(path);
    if (std::filesystem::is_symlink(folder.path("best"))) test::check_checkpoint(folder.path("best"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      after_kill += entry.path().filename().string().find(".tmp") != std::string::npos;
  }
  EXPECT_GT(after_kill, 5) << "hardly any round was killed while it saved";
}

TEST(Crash, AFullDiskIsSaidAndTheOldCheckpointStays) {
  const Folder folder;
  CheckpointWriter writer({.directory = folder.path(), .keep = 1});
  const Tensor weights(DType::f32, Shape{1 << 16});
  const auto save = [&](int64_t step) {
    writer.save({.step = step, .model = "m"}, {{"w", weights.shape(), Shape{0}, weights.view()}});
    writer.wait();
  };
  save(1);
  // A file may be 100 kB long, as on a disk with no more room than that.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 100'000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const Error error = test::error_of([&] { save(2); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), Code::io);
  EXPECT_THAT(error.message(), testing::HasSubstr("step-000002.tmp/shard-00000-of-00001.safetensors"));
  EXPECT_THAT(error.message(), testing::HasSubstr("100 kB"));
  EXPECT_THAT(error.hint(), testing::HasSubstr("space"));
  EXPECT_EQ(Checkpoint::open(folder.path("step-000001")).read("w").elements(), 1 << 16);
  save(3);
  EXPECT_THAT(list_checkpoints(folder.path()), testing::ElementsAre(folder.path("step-000003")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("step-000002.tmp")));
}

}  // namespace
}  // namespace plait

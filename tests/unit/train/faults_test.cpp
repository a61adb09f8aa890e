// A process that dies in the midst of training: the others name it, the last checkpoint is whole, and a run continues
// from it.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "core/comm/mpi_world.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/data/document_encoder.h"
#include "core/train/trainer.h"
#include "tests/unit/support/models.h"
#include "tests/unit/support/process_fault.h"
#include "tests/unit/train/runs.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* faulty_model = "llama-standard23";

Dataset long_run_data() {
  std::vector<Document> out;
  for (const std::vector<int32_t>& ids : documents()) out.push_back({ids, {}});
  return Dataset::of(out, {.seq = row_tokens});
}

TrainerOptions long_run(const std::string& directory) {
  TrainerOptions out;
  out.training = training(OptimizerKind::adamw, 3);
  out.rate = {.peak = 1e-3, .schedule = RateSchedule::constant};
  out.steps = 1000000;  // far more than there is time for
  out.batch = 4;
  out.save_every = 1;
  out.directory = directory;
  return out;
}

/// The mesh of a fault's run: faults at even steps are of a pipeline's ranks.
const char* mesh_of(const ProcessFault& fault) { return fault.step % 2 ? "data=2,tensor=2" : "pipeline=2,data=2"; }

/// The folder of a fault: the script that asks for it makes it.
std::string folder_of_fault() {
  const char* folder = std::getenv("PLAIT_FAULT_FOLDER");
  return folder ? folder : "";
}

/// Kills this process as soon as the checkpoint of a step is there, whatever it is doing then.
class Killer {
 public:
  Killer(std::string directory, int64_t step)
      : thread_([this, directory = std::move(directory), step] {
          const auto is_there = [&] {
            const std::vector<std::string> steps = list_checkpoints(directory);
            return !steps.empty() && Checkpoint::open(steps.back()).info().step >= step;
          };
          while (!over_) {
            if (error_of([&] {
                  if (is_there()) ::raise(SIGKILL);
                }).code() != Code::ok)
              continue;  // one was removed as it was looked at
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Killer() { over_ = true; }

 private:
  std::atomic<bool> over_ = false;
  std::jthread thread_;
};

// tests/unit/comm/mpi_faults.py runs this under mpirun; PLAIT_FAULT specifies what fails where: "dies 2 5". A rank
// that hears of it prints a line that the script counts.
TEST(Faults, OfProcesses) {
  const auto asked = ProcessFault::asked();
  if (!asked || folder_of_fault().empty()) GTEST_SKIP() << "only under mpi_faults.py";
  ASSERT_EQ(asked->kind, "dies");
  const char* plugin = std::getenv("PLAIT_MPI_PLUGIN");
  std::shared_ptr<plait::World> world = open_mpi_world(asked->options, plugin ? plugin : "");
  const TrainerOptions run = long_run(folder_of_fault());
  std::optional<Killer> killer;
  if (world->rank() == asked->rank) killer.emplace(run.directory + "/checkpoints", asked->step + 1);
  const auto start = Clock::now();
  const Error error = error_of([&] {
    ThreadPool pool(1);
    const Graph graph = fixture_graph(faulty_model);
    const CompileOptions compile = on(mesh_of(*asked));
    if (world->rank() == 0)
      Trainer(graph, compile, run, long_run_data(), std::nullopt, pool, nullptr, world.get()).run();
    else serve_training(*world, graph, compile, run.training, pool);
  });
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 2 * asked->bound_s);
  EXPECT_THAT(error.message(), testing::HasSubstr(cat("rank ", asked->rank)));
  if (!HasFailure()) std::printf("a rank heard of it\n");
}

/// The script runs it when all processes are gone: by itself.
TEST(Faults, AreSurvived) {
  if (folder_of_fault().empty()) GTEST_SKIP() << "only under mpi_faults.py";
  TrainerOptions run = long_run(folder_of_fault());
  run.resume = true;
  ThreadPool pool(2);
  Trainer trainer(fixture_graph(faulty_model), on("data=2"), run, long_run_data(), std::nullopt, pool);
  const int64_t done = trainer.steps_done();
  EXPECT_GE(done, ProcessFault::asked()->step + 1);
  // A run that nothing happened to has the same losses.
  run.directory.clear();
  run.resume = false;
  Trainer straight(fixture_graph(faulty_model), on(""), run, long_run_data(), std::nullopt, pool);
  for (int64_t step = 0; step < done; ++step) straight.step();
  for (int step = 0; step < 2; ++step) {
    const double expected = straight.step()->loss;
    EXPECT_NEAR(trainer.step()->loss, expected, 1e-4 * expected);
  }
}

}  // namespace
}  // namespace plait::test

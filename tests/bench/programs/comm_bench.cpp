// How long two ranks need for the sum of their f32 buffers: threads, processes that share memory, processes that send
// messages, and next to them Open MPI's own MPI_Allreduce on the same buffers, in turn, in the same run.
//
//   comm_bench [rounds] [--json FILE]
//
// It starts itself under mpirun; built without MPI it measures threads. Figures are of single calls, seen by rank 0,
// while both ranks call one after the other: the best of all rounds, the median and the 95th percentile. Wants two
// idle cores: with less, the best is what to compare, and the medians show how busy the machine was.
#ifdef PLAIT_BENCH_MPI
#define OMPI_SKIP_MPICXX 1  // only the C interface
#include <mpi.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "core/base/thread_pool.h"
#include "core/comm/mpi_world.h"
#include "tests/bench/programs/figures.h"

namespace {

using namespace plait;
using Clock = std::chrono::steady_clock;
/// Makes the sum of `elements` floats over two ranks, in place.
using AllReduce = std::function<void(float* data, int64_t elements)>;

struct Contender {
  std::string name;
  std::vector<double> us = {};
  bool wrong = false;

  double quantile(double q) const {
    return us[std::min(us.size() - 1, static_cast<size_t>(q * static_cast<double>(us.size())))];
  }
};

int calls_of(int64_t bytes) { return static_cast<int>(std::clamp<int64_t>((int64_t{32} << 20) / bytes, 4, 500)); }

/// One rank's share of a round. `out`: null on ranks that do not measure.
void one_round(float* data, int64_t elements, int rank, const AllReduce& all_reduce, Contender* out) {
  for (int64_t i = 0; i < elements; ++i) data[i] = static_cast<float>(i % 1000 + rank);
  all_reduce(data, elements);
  for (int64_t i = 0; out && i < elements; ++i) out->wrong |= data[i] != static_cast<float>(2 * (i % 1000) + 1);
  std::fill_n(data, elements, 0.0f);
  for (int call = calls_of(elements * 4); call > 0; --call) {
    const auto start = Clock::now();
    all_reduce(data, elements);
    if (out) out->us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
}

AllReduce through(Communicator& communicator) {
  return [&communicator](float* data, int64_t elements) {
    communicator.all_reduce({reinterpret_cast<std::byte*>(data), DType::f32, {elements}}, Reduction::sum);
  };
}

/// Each rank on a core of its own, as mpirun would bind them: schedulers put two ranks on one when others want the
/// rest.
void stay_on_core(int rank) {
  cpu_set_t usable, one;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < 2) return;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable) && rank-- == 0) CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

/// Two threads, of which the first measures; their buffers are kept from round to round.
class Threads {
 public:
  explicit Threads(int64_t most_bytes)
      : buffers_{Tensor(DType::f32, {most_bytes / 4}), Tensor(DType::f32, {most_bytes / 4})} {
    pool_.run([](int rank) { stay_on_core(rank); });
  }

  void round(int64_t elements, Contender& out) {
    pool_.run([&](int rank) {
      one_round(buffers_[rank].as<float>(), elements, rank, through(worlds_[rank]->communicator()),
                rank ? nullptr : &out);
    });
  }

 private:
  std::vector<std::unique_ptr<World>> worlds_ = make_thread_world(2);
  Tensor buffers_[2];
  ThreadPool pool_{2};
};

void report(int64_t bytes, std::vector<Contender>& contenders, bench::Figures& figures) {
  nlohmann::ordered_json row = {{"bytes", bytes}};
  std::printf("%9ld", bytes);
  for (Contender& one : contenders) {
    std::sort(one.us.begin(), one.us.end());
    const double best = one.us[0], median = one.quantile(0.5);
    std::printf(" | %8.2f %8.2f %8.2f %6.2f%s", best, median, one.quantile(0.95),
                static_cast<double>(bytes) / median * 1e-3, one.wrong ? " WRONG" : "");
    row[one.name] = {{"best_us", best},
                     {"p50_us", median},
                     {"p95_us", one.quantile(0.95)},
                     {"gb_per_s", static_cast<double>(bytes) / median * 1e-3},
                     {"right", !one.wrong}};
  }
  if (contenders.size() > 1) {
    const Contender& mpi = contenders.back();
    for (const Contender& one : contenders)
      if (&one != &mpi) std::printf(" | %5.1f %5.1f", mpi.us[0] / one.us[0], mpi.quantile(0.5) / one.quantile(0.5));
  }
  std::printf("\n");
  std::fflush(stdout);
  figures.add(row);
}

void print_head(const std::vector<std::string>& names) {
  std::printf("us: best, p50, p95; GB/s of the buffer at p50\n%9s", "bytes");
  for (const auto& name : names) std::printf(" | %-33s", name.c_str());
  for (size_t i = 0; i + 1 < names.size(); ++i) std::printf(" | %-11s", "best  p50 x");
  std::printf("\n");
}

double load() {
  double one = 0;
  return getloadavg(&one, 1) == 1 ? one : 0;
}

constexpr int64_t least = 64, most = int64_t{16} << 20;

#ifdef PLAIT_BENCH_MPI

// Rank 1 sleeps while rank 0 measures its threads: it waits for a command.
int run_processes(int argc, char** argv, int rounds) {
  MPI_Init(&argc, &argv);
  int rank = 0, status = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  {
    bench::Figures figures(argc, argv);
    const char* plugin = std::getenv("PLAIT_MPI_PLUGIN");
    auto memory = open_mpi_world({}, plugin ? plugin : PLAIT_BENCH_PLUGIN);
    CommOptions apart;
    apart.share_memory = false;
    auto messages = open_mpi_world(apart, plugin ? plugin : PLAIT_BENCH_PLUGIN);
    Tensor buffer(DType::f32, {most / 4});
    const std::vector<std::string> names = {"threads", "shared memory", "messages", "MPI_Allreduce"};
    const AllReduce mpi = [](float* data, int64_t elements) {
      MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(elements), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    std::optional<Threads> threads;
    if (rank == 0) threads.emplace(most);
    else stay_on_core(rank);
    const double load_before = load();
    if (rank == 0) print_head(names);
    for (int64_t bytes = least; bytes <= most; bytes *= 2) {
      std::vector<Contender> contenders;
      for (const auto& name : names) contenders.push_back({name});
      for (int round = 0; round < rounds; ++round) {
        auto out = [&](int i) { return rank ? nullptr : &contenders[i]; };
        if (rank == 0) {
          threads->round(bytes / 4, contenders[0]);
          memory->broadcast_command({});
        } else {
          memory->next_command();
        }
        one_round(buffer.as<float>(), bytes / 4, rank, through(memory->communicator()), out(1));
        one_round(buffer.as<float>(), bytes / 4, rank, through(messages->communicator()), out(2));
        one_round(buffer.as<float>(), bytes / 4, rank, mpi, out(3));
      }
      if (rank == 0) report(bytes, contenders, figures);
    }
    if (rank == 0) {
      std::printf("load average before %.1f, after %.1f, of %ld cores: 2 of it is this benchmark\n", load_before,
                  load(), sysconf(_SC_NPROCESSORS_ONLN));
      figures.about({{"benchmark", "comm"}, {"ranks", 2}, {"load_before", load_before}, {"load_after", load()}});
      status = figures.finish();
    }
  }
  MPI_Finalize();
  return status;
}

#endif

int run_threads(int argc, char** argv, int rounds) {
  bench::Figures figures(argc, argv);
  Threads threads(most);
  print_head({"threads"});
  for (int64_t bytes = least; bytes <= most; bytes *= 2) {
    std::vector<Contender> contenders = {{"threads"}};
    for (int round = 0; round < rounds; ++round) threads.round(bytes / 4, contenders[0]);
    report(bytes, contenders, figures);
  }
  figures.about({{"benchmark", "comm"}, {"ranks", 2}, {"load_after", load()}});
  return figures.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const auto words = bench::Figures(argc, argv).arguments;
  const int rounds = !words.empty() ? std::max(1, std::atoi(words[0].c_str())) : 10;
#ifdef PLAIT_BENCH_MPI
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return run_processes(argc, argv, rounds);
  // Unbound, as the threads of rank 0 need both cores.
  std::vector<const char*> command = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
                                      "2"};
  command.insert(command.end(), argv, argv + argc + 1);
  execvp(command[0], const_cast<char* const*>(command.data()));
  std::perror("mpirun");
#endif
  return run_threads(argc, argv, rounds);
}

// Collectives between devices: by peer memory, by NCCL, and through the host's memory. Under mpirun the tests of peer memory are between
// processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>

#include "core/base/text.h"
#include "core/comm/mpi_world.h"
#include "core/comm/world.h"
#include "tests/unit/cuda_driver/on_device.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

constexpr int two = 2;

/// A rank: its device, and the group of all.
struct Rank {
  int number;
  Device& device;
  Communicator &group, &host;  ///< of arrays on devices, and of the host's

  Tensor floats(const std::vector<float>& values) const {
    return device.upload(Tensor::of<float>(DType::f32, {static_cast<int64_t>(values.size())}, values));
  }
  Tensor array(const Tensor& host) const { return device.upload(host); }
  /// Of which sums are NCCL's.
  Tensor integers(int64_t count) const { return device.upload(Tensor(DType::i32, {count})); }
  std::vector<float> values(const Tensor& array) const {
    const Tensor host = device.fetch(array);
    return {host.view().as<float>(), host.view().as<float>() + host.view().elements()};
  }
};

/// The processes that mpirun started, of which this is one; null where it is not. MPI begins once in a process.
plait::World* processes() {
  static const std::unique_ptr<plait::World> world = [] {
    const char* plugin = std::getenv("PLAIT_MPI_PLUGIN");
    return std::getenv("OMPI_COMM_WORLD_SIZE") ? open_mpi_world({}, plugin ? plugin : "") : nullptr;
  }();
  return world.get();
}

std::shared_ptr<const cuda::CudaLibraries> libraries_without_nccl() {
  auto out = std::make_shared<cuda::CudaLibraries>(*emulated_libraries());
  out->nccl.reset();
  return out;
}

/// The error of `body` on a rank; "" without one.
std::string on_rank(Communicator& world, int ordinal, bool nccl, const std::function<void(const Rank&)>& body) {
  return error([&] {
    try {
      const auto device = cuda::make_cuda_device(nccl ? emulated_libraries() : libraries_without_nccl(), ordinal);
      const auto group = device->communicator(world.split(0, world.rank()));
      body({world.rank(), *device, *group, world});
    } catch (const Error& error) {
      world.abort(error.message());
      throw;
    }
  });
}

/// Runs `body` on each rank; errors by rank, under mpirun this process's. `one_device`: the ranks share a device, which NCCL refuses.
std::vector<std::string> on_ranks(bool one_device, const std::function<void(const Rank&)>& body, int ranks = two,
                                  bool nccl = true) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  if (plait::World* world = processes()) {
    errors[static_cast<size_t>(world->rank())] = on_rank(world->communicator(), world->rank(), nccl, body);
    return errors;
  }
  const auto worlds = make_thread_world(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto number = static_cast<size_t>(rank);
      errors[number] = on_rank(worlds[number]->communicator(), one_device ? 0 : rank, nccl, body);
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

class DeviceGroup : public testing::TestWithParam<bool> {};

TEST_P(DeviceGroup, DoesEveryCollective) {
  const auto errors = on_ranks(GetParam(), [](const Rank& rank) {
    const auto own = static_cast<float>(rank.number);
    const Tensor sum = rank.floats({own, 10});
    rank.group.all_reduce(sum.view(), Reduction::sum);
    EXPECT_EQ(rank.values(sum), (std::vector<float>{1, 20}));
    const Tensor most = rank.floats({own, -own});
    rank.group.all_reduce(most.view(), Reduction::max);
    EXPECT_EQ(rank.values(most), (std::vector<float>{1, 0}));
    const Tensor part = rank.floats({own, own + 5}), all = rank.floats({0, 0, 0, 0});
    rank.group.all_gather(part.view(), all.view());
    EXPECT_EQ(rank.values(all), (std::vector<float>{0, 5, 1, 6}));
    rank.group.reduce_scatter(all.view(), part.view(), Reduction::sum);
    EXPECT_EQ(rank.values(part), rank.number ? (std::vector<float>{2, 12}) : (std::vector<float>{0, 10}));
    const Tensor from = rank.floats({own, own + 10}), to = rank.floats({0, 0});
    rank.group.all_to_all(from.view(), to.view());
    EXPECT_EQ(rank.values(to), rank.number ? (std::vector<float>{10, 11}) : (std::vector<float>{0, 1}));
    const Tensor given = rank.floats({own + 3});
    rank.group.broadcast(given.view(), 1);
    EXPECT_EQ(rank.values(given), std::vector<float>{4});
    if (rank.number == 0) rank.group.send(given.view(), 1, 5);
    else rank.group.recv(given.view(), 0, 5);
    EXPECT_EQ(rank.values(given), std::vector<float>{4});
    const auto split = rank.group.split(rank.number, 0);
    EXPECT_EQ(split->size(), 1);
    rank.group.barrier();
  });
  EXPECT_EQ(errors, std::vector<std::string>(two));
}

TEST_P(DeviceGroup, AsynchronousOnesAreInTheirQueue) {
  const auto errors = on_ranks(GetParam(), [](const Rank& rank) {
    Queue &compute = rank.device.queue(Use::compute), &collective = rank.device.queue(Use::collective);
    for (int round = 0; round < 10; ++round) {
      const Tensor sum = rank.floats({1, 2});
      rank.device.wait(collective, rank.device.record(compute));
      const QueueEvent end =
          rank.device.submit(collective, [&] { rank.group.all_reduce(sum.view(), Reduction::sum); });
      rank.device.wait(compute, end);
      EXPECT_EQ(rank.values(sum), (std::vector<float>{2, 4}));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(two));
}

TEST_P(DeviceGroup, ARankThatFailsEndsTheOthers) {
  const auto errors = on_ranks(GetParam(), [](const Rank& rank) {
    if (rank.number == 1) throw Error(Code::internal, "no more");
    const Tensor sum = rank.floats({1, 2});
    rank.group.all_reduce(sum.view(), Reduction::sum);
    rank.values(sum);
  });
  EXPECT_NE(errors[0].find("no more"), std::string::npos) << errors[0];
}

INSTANTIATE_TEST_SUITE_P(All, DeviceGroup, testing::Bool(),
                         [](const auto& info) { return info.param ? "host" : "nccl"; });

/// Random numbers, of which sums round.
Tensor some(DType dtype, int64_t count, std::mt19937& random) {
  Tensor out(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    const float value = std::normal_distribution<float>()(random);
    if (dtype == DType::f32) out.as<float>()[i] = value;
    else if (dtype == DType::f16) out.as<Float16>()[i] = to_float16(value);
    else out.as<BFloat16>()[i] = to_bfloat16(value);
  }
  return out;
}
std::string bytes(const Tensor& host) {
  return {reinterpret_cast<const char*>(host.data()), static_cast<size_t>(host.bytes())};
}

class PeerGroup : public testing::TestWithParam<int> {
 protected:
  /// None of it may be NCCL's.
  void SetUp() override {
    if (processes() && processes()->size() != GetParam()) GTEST_SKIP() << "of another number of processes";
    emulated_fail("ncclAllReduce:1");
  }
  void TearDown() override { emulated_fail(nullptr); }
};

/// In one step, in two, and in pieces, by any queue and without the host's waiting.
TEST_P(PeerGroup, ReducesAsTheHostDoes) {
  const int ranks = GetParam();
  const auto errors = on_ranks(
      false,
      [](const Rank& rank) {
        std::mt19937 random(static_cast<uint32_t>(rank.number));
        for (const Use use : {Use::compute, Use::collective}) {
          Queue& queue = rank.device.queue(use);
          std::vector<Tensor> own, given, sums;
          const auto reduction_of = [](size_t i) { return i % 5 == 3 ? Reduction::max : Reduction::sum; };
          for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
            for (const int64_t count : {1, 300, 7, 1 << 14, (1 << 14) + 1, 2, 33001, 2, 2, 500, 1})
              own.push_back(some(dtype, count, random));
          if (use == Use::compute) own.push_back(some(DType::f32, 280001, random));
          for (const Tensor& one : own) given.push_back(rank.array(one)), sums.push_back(rank.array(one));
          rank.device.wait(queue, rank.device.record(rank.device.queue(Use::compute)));
          const QueueEvent end = rank.device.submit(queue, [&] {
            for (size_t i = 0; i < sums.size(); ++i)
              rank.group.all_reduce_into(i % 2 ? sums[i].view() : given[i].view(), sums[i].view(), reduction_of(i));
          });
          rank.device.finish(end);
          for (size_t i = 0; i < sums.size(); ++i) {
            rank.host.all_reduce(own[i].view(), reduction_of(i));
            EXPECT_EQ(bytes(rank.device.fetch(sums[i])), bytes(own[i])) << "sum " << i;
          }
        }
        const Tensor most = rank.floats({rank.number ? NAN : 1, static_cast<float>(rank.number)});
        rank.group.all_reduce(most.view(), Reduction::max);
        EXPECT_TRUE(std::isnan(rank.values(most)[0]));
        EXPECT_EQ(rank.values(most)[1], static_cast<float>(rank.group.size() - 1));
      },
      ranks);
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
}

/// Parts of any bytes, also in place, and larger than a piece.
TEST_P(PeerGroup, GathersAndScattersAsTheHostDoes) {
  const int ranks = GetParam();
  emulated_fail("ncclAllGather:1");
  const auto errors = on_ranks(
      false,
      [](const Rank& rank) {
        std::mt19937 random(static_cast<uint32_t>(rank.number));
        for (const DType dtype : {DType::bf16, DType::f32})
          for (const int64_t count : {1, 8, 9, 4096, 140001}) {
            SCOPED_TRACE(cat(dtype_name(dtype), " ", count));
            const Tensor whole = some(dtype, count * rank.group.size(), random), part(dtype, {count});
            const Tensor on_device = rank.array(whole), own = rank.array(part);
            rank.host.reduce_scatter(whole.view(), part.view(), Reduction::sum);
            rank.group.reduce_scatter(on_device.view(), own.view(), Reduction::sum);
            EXPECT_EQ(bytes(rank.device.fetch(own)), bytes(part));
            rank.host.all_gather(part.view(), whole.view());
            rank.group.all_gather(own.view(), on_device.view());
            EXPECT_EQ(bytes(rank.device.fetch(on_device)), bytes(whole));
            const TensorView all = on_device.view();
            rank.device.fill(rank.device.queue(Use::compute), all.data, 0, rank.number * own.bytes());
            rank.group.all_gather({all.data + rank.number * own.bytes(), dtype, {count}}, all);
            EXPECT_EQ(bytes(rank.device.fetch(on_device)), bytes(whole)) << "in place";
          }
      },
      ranks);
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
}

/// A graph has them, in both queues: launches of it, and calls outside of it, are one after another.
TEST_P(PeerGroup, AreInGraphs) {
  const int ranks = GetParam();
  const auto errors = on_ranks(
      false,
      [](const Rank& rank) {
        Queue &compute = rank.device.queue(Use::compute), &collective = rank.device.queue(Use::collective);
        const Tensor small = rank.floats({0, 0}), large = rank.array(Tensor(DType::f32, {20000}));
        const auto sum = [&] {
          rank.group.all_reduce(small.view(), Reduction::sum);
          rank.device.wait(collective, rank.device.record(compute));
          const QueueEvent end =
              rank.device.submit(collective, [&] { rank.group.all_reduce(large.view(), Reduction::sum); });
          rank.device.wait(compute, end);
          rank.group.all_reduce(small.view(), Reduction::max);
        };
        const auto captured = rank.device.capture(compute, sum);
        auto expected = static_cast<float>(rank.group.size());
        for (int i = 0; i < 5; ++i, expected *= static_cast<float>(rank.group.size())) {
          if (!i)
            for (const Tensor& one : {small, large}) {
              std::vector<float> ones(static_cast<size_t>(one.view().elements()), 1);
              rank.device.write(compute, one.view().data, ones.data(), one.bytes());
            }
          if (i % 3 == 2) sum();
          else rank.device.replay(compute, *captured);
          EXPECT_EQ(rank.values(small), (std::vector<float>{expected, expected})) << i;
          EXPECT_EQ(rank.values(large), std::vector<float>(20000, expected)) << i;
        }
      },
      ranks);
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
}

INSTANTIATE_TEST_SUITE_P(All, PeerGroup, testing::Values(2, 3, 4));

TEST(PeerSums, EndWhenARankFails) {
  const auto errors = on_ranks(false, [](const Rank& rank) {
    const Tensor sum = rank.floats({1, 2}), all = rank.floats({0, 0, 0, 0});
    rank.group.all_reduce(sum.view(), Reduction::sum);
    rank.values(sum);
    if (rank.number == 1) throw Error(Code::internal, "no more");
    for (int i = 0; i < 3; ++i) rank.group.all_reduce(sum.view(), Reduction::sum);
    rank.group.all_gather(sum.view(), all.view());
    rank.values(sum);
  });
  EXPECT_NE(errors[0].find("no more"), std::string::npos) << errors[0];
}

/// Whatever waits for the device, the failed rank's message comes at once, and not with the emulation's limit of 20 s for a kernel.
TEST(PeerSums, EndWhateverWaitsForThem) {
  using Clock = std::chrono::steady_clock;
  for (const char* what : {"take", "free", "write", "read"}) {
    std::chrono::duration<double> waited{};
    const auto errors = on_ranks(false, [&](const Rank& rank) {
      const Tensor sum = rank.floats({1, 2});
      Tensor other = rank.floats({3});
      rank.group.all_reduce(sum.view(), Reduction::sum);
      rank.values(sum);
      if (rank.number == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        throw Error(Code::internal, "no more");
      }
      const auto begin = Clock::now();
      const std::string ended = error([&] {
        rank.group.all_reduce(sum.view(), Reduction::sum);  // waits for rank 1
        if (*what == 't') rank.device.take(1 << 20);
        if (*what == 'f') other = Tensor();
        if (*what == 'w') rank.floats(std::vector<float>(5 << 20));  // more than the staging holds
        rank.values(sum);
      });
      waited = Clock::now() - begin;
      throw Error(Code::io, ended);
    });
    EXPECT_NE(errors[0].find("no more"), std::string::npos) << what << ": " << errors[0];
    EXPECT_LT(waited.count(), 6 * machine_load()) << what;
  }
}

/// Memory is freed by any thread, which waits for all streams before, also for one that is to be captured.
TEST(PeerSums, AreCapturedWhileAnotherThreadFreesMemory) {
  const auto errors = on_ranks(false, [](const Rank& rank) {
    Queue& compute = rank.device.queue(Use::compute);
    const Tensor most = rank.floats({1, static_cast<float>(rank.number)});
    std::atomic<bool> ends = false;
    std::string freeing;
    std::thread other([&] {
      freeing = error([&] {
        while (!ends) rank.device.take(1 << 10);
      });
    });
    const std::string capturing = error([&] {
      for (int i = 0; i < 40; ++i) {
        const auto captured =
            rank.device.capture(compute, [&] { rank.group.all_reduce(most.view(), Reduction::max); });
        rank.device.replay(compute, *captured);
        EXPECT_EQ(rank.values(most), (std::vector<float>{1, 1}));
      }
    });
    ends = true;
    other.join();
    EXPECT_EQ(capturing + freeing, "");
  });
  EXPECT_EQ(errors, std::vector<std::string>(two));
}

TEST(PeerSums, AreNcclsWhereAccessIsRefused) {
  for (const char* function : {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"}) {
    emulated_fail((std::string(function) + ":1").c_str());
    const auto errors = on_ranks(false, [](const Rank& rank) {
      const Tensor sum = rank.floats({1, 2});
      rank.group.all_reduce(sum.view(), Reduction::sum);
      EXPECT_EQ(rank.values(sum), (std::vector<float>{2, 4}));
    });
    emulated_fail(nullptr);
    EXPECT_EQ(errors, std::vector<std::string>(two));
  }
}

bool sums_in_peer_memory(const Rank& rank) { return rank.group.transport() == "peer memory"; }

/// A rank of several processes whose driver refuses a call: all go through NCCL, or without it the host, and nothing is left.
TEST(PeerProcesses, GoThroughNcclOrTheHostWhereAHandleIsRefused) {
  if (!processes()) GTEST_SKIP() << "only under mpirun";
  const int ranks = processes()->size();
  for (const auto& [fault, nccl] : {std::pair("", true),
                                    {"", false},
                                    {"cuIpcGetMemHandle:1", true},
                                    {"cuIpcGetMemHandle:2", false},
                                    {"cuIpcOpenMemHandle:1", false},
                                    {"cuIpcOpenMemHandle:2", true}}) {
    SCOPED_TRACE(cat(fault, nccl ? "" : " without NCCL"));
    const plait_emulated_counts before = emulated_counts();
    if (processes()->rank() == 1) emulated_fail(fault);
    const auto errors = on_ranks(
        false,
        [&, fault = fault, nccl = nccl](const Rank& rank) {
          emulated_fail(nullptr);
          EXPECT_EQ(rank.group.transport().substr(0, 4), !*fault ? "peer" : nccl ? "NCCL" : "host");
          const Tensor sum = rank.floats({1, 2}), number = rank.integers(2);
          rank.group.all_reduce(sum.view(), Reduction::sum);
          rank.group.all_reduce(number.view(), Reduction::sum);  // never in peer memory
          EXPECT_EQ(rank.values(sum), (std::vector<float>{1.0F * ranks, 2.0F * ranks}));
        },
        ranks, nccl);
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
    EXPECT_EQ(emulated_counts().allocations, before.allocations);
    EXPECT_EQ(emulated_counts().left, before.left);
  }
}

/// Where a rank cannot close a buffer, none is freed before the processes end.
TEST(PeerProcesses, DoNotFreeWhatAnotherHasOpen) {
  if (!processes()) GTEST_SKIP() << "only under mpirun";
  const int ranks = processes()->size(), rank = processes()->rank();
  const plait_emulated_counts before = emulated_counts();
  if (rank == 1) emulated_fail("cuIpcCloseMemHandle:1");
  const auto errors = on_ranks(
      false, [](const Rank& rank) { EXPECT_TRUE(sums_in_peer_memory(rank)); }, ranks);
  emulated_fail(nullptr);
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(ranks)));
  EXPECT_EQ(emulated_counts().allocations, before.allocations + 2 + (rank == 1)) << "two buffers, and the open one";
}

TEST(NcclCalls, ThatDifferAreAnErrorThatNamesBoth) {
  const auto errors = on_ranks(false, [](const Rank& rank) {
    const Tensor sum = rank.integers(rank.number ? 3 : 2);
    rank.group.all_reduce(sum.view(), Reduction::sum);
    rank.device.fetch(sum);
  });
  const std::string both = errors[0] + errors[1];
  EXPECT_NE(both.find("ncclAllReduce of 2 int32, sum by rank 0"), std::string::npos) << both;
  EXPECT_NE(both.find("ncclAllReduce of 3 int32, sum by rank 1"), std::string::npos) << both;
}

/// Any thread that waits for the device may be the first to see that a rank has failed, and ends the group under the thread that calls it.
TEST(NcclCalls, EndWhileAnotherThreadWaits) {
  for (int round = 0; round < 5; ++round) {
    const auto errors = on_ranks(false, [](const Rank& rank) {
      const Tensor sum = rank.integers(2);
      const auto add = [&] { rank.group.all_reduce(sum.view(), Reduction::sum); };
      if (rank.number) {
        for (int i = 0; i < 10; ++i) add();
        rank.device.fetch(sum);
        throw Error(Code::internal, "no more");
      }
      std::atomic<bool> ends = false;
      std::thread other([&] {
        error([&] {
          while (!ends) rank.device.take(64);
        });
      });
      const std::string ended = error([&] {
        for (;;) add();
      });
      ends = true;
      other.join();
      throw Error(Code::io, ended);
    });
    EXPECT_TRUE(errors[0].find("no more") != std::string::npos ||
                errors[0].find("the group of devices has ended") != std::string::npos)
        << errors[0];
  }
}

/// In graphs too, each launch is a call of the group; NCCL wants the same of all ranks.
TEST(NcclCalls, AreInGraphs) {
  const auto errors = on_ranks(false, [](const Rank& rank) {
    Queue& compute = rank.device.queue(Use::compute);
    const Tensor sum = rank.device.upload(Tensor::of<int32_t>(DType::i32, {2}, std::vector<int32_t>{1, rank.number}));
    const auto add = [&] { rank.group.all_reduce(sum.view(), Reduction::sum); };
    const auto captured = rank.device.capture(compute, add);
    for (int i = 1; i < 6; ++i) {
      if (i == 3) add();
      else rank.device.replay(compute, *captured);
      const Tensor host = rank.device.fetch(sum);
      EXPECT_EQ(host.as<int32_t>()[0], 1 << i);
      EXPECT_EQ(host.as<int32_t>()[1], 1 << (i - 1));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(two));
}

TEST(NcclCalls, OfAGraphMeetThoseOfGraphsOnly) {
  const auto errors = on_ranks(false, [](const Rank& rank) {
    Queue& compute = rank.device.queue(Use::compute);
    const Tensor sum = rank.integers(2);
    const auto add = [&] { rank.group.all_reduce(sum.view(), Reduction::sum); };
    if (rank.number) rank.device.replay(compute, *rank.device.capture(compute, add));
    else add();
    rank.device.fetch(sum);
  });
  const std::string both = errors[0] + errors[1];
  EXPECT_NE(both.find("captured ncclAllReduce of 2 int32, sum by rank 1"), std::string::npos) << both;
}

TEST(NcclCalls, ThatFailAreNamed) {
  for (const char* function : {"ncclAllReduce", "ncclCommInitRankConfig", "ncclGetUniqueId"}) {
    emulated_fail((std::string(function) + ":1").c_str());
    const auto errors = on_ranks(false, [](const Rank& rank) {
      const Tensor sum = rank.integers(2);
      rank.group.all_reduce(sum.view(), Reduction::sum);
      rank.device.fetch(sum);
    });
    emulated_fail(nullptr);
    EXPECT_NE((errors[0] + errors[1]).find(function), std::string::npos) << errors[0] << errors[1];
  }
}

}  // namespace
}  // namespace plait::test

// Collectives between devices: by NCCL, and through the host's memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "core/comm/world.h"
#include "tests/unit/cuda_driver/on_device.h"

namespace plait::test {
namespace {

constexpr int ranks = 2;

/// A rank: its device, and the group of all.
struct Rank {
  int number;
  Device& device;
  Communicator &group, &host;  ///< of arrays on devices, and of the host's

  Tensor floats(const std::vector<float>& values) const {
    return device.upload(Tensor::of<float>(DType::f32, {static_cast<int64_t>(values.size())}, values));
  }
  /// Of which sums are NCCL's.
  Tensor integers(int64_t count) const { return device.upload(Tensor(DType::i32, {count})); }
  std::vector<float> values(const Tensor& array) const {
    const Tensor host = device.fetch(array);
    return {host.view().as<float>(), host.view().as<float>() + host.view().elements()};
  }
};

/// Runs `body` on each rank; errors by rank. `one_device`: the ranks share a device, which NCCL refuses.
std::vector<std::string> on_ranks(bool one_device, const std::function<void(const Rank&)>& body) {
  const auto worlds = make_thread_world(ranks);
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      errors[static_cast<size_t>(rank)] = error([&] {
        Communicator& world = worlds[static_cast<size_t>(rank)]->communicator();
        try {
          const auto device = cuda::make_cuda_device(emulated_libraries(), one_device ? 0 : rank);
          const auto group = device->communicator(world.split(0, rank));
          body({rank, *device, *group, world});
        } catch (const Error& error) {
          world.abort(error.message());
          throw;
        }
      });
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
  EXPECT_EQ(errors, std::vector<std::string>(ranks));
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
  EXPECT_EQ(errors, std::vector<std::string>(ranks));
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

/// Sums of f32 go from device to device, without NCCL, and without the host's waiting for them.
TEST(PeerSums, AreThoseOfTheHostInAnyQueue) {
  emulated_fail("ncclAllReduce:1");
  const auto errors = on_ranks(false, [](const Rank& rank) {
    std::mt19937 random(static_cast<uint32_t>(rank.number));
    for (const Use use : {Use::compute, Use::collective}) {
      Queue& queue = rank.device.queue(use);
      std::vector<Tensor> sums;
      std::vector<std::vector<float>> own;
      for (const size_t count : {1, 300, 7, 1 << 14, 2, 2, 2, 500, 1}) {
        std::vector<float>& values = own.emplace_back(count);
        for (float& value : values) value = std::normal_distribution<float>()(random);
        sums.push_back(rank.floats(values));
      }
      rank.device.wait(queue, rank.device.record(rank.device.queue(Use::compute)));
      const QueueEvent end = rank.device.submit(queue, [&] {
        for (const Tensor& sum : sums) rank.group.all_reduce(sum.view(), Reduction::sum);
      });
      rank.device.finish(end);
      for (size_t i = 0; i < sums.size(); ++i) {
        Tensor all = Tensor::of<float>(DType::f32, {static_cast<int64_t>(own[i].size())}, own[i]);
        rank.host.all_reduce(all.view(), Reduction::sum);
        EXPECT_EQ(rank.values(sums[i]), std::vector<float>(all.as<float>(), all.as<float>() + all.elements())) << i;
      }
    }
    const Tensor most = rank.floats({rank.number ? NAN : 1, static_cast<float>(rank.number)});
    rank.group.all_reduce(most.view(), Reduction::max);
    EXPECT_TRUE(std::isnan(rank.values(most)[0]));
    EXPECT_EQ(rank.values(most)[1], 1);
  });
  emulated_fail(nullptr);
  EXPECT_EQ(errors, std::vector<std::string>(ranks));
}

TEST(PeerSums, EndWhenARankFails) {
  const auto errors = on_ranks(false, [](const Rank& rank) {
    const Tensor sum = rank.floats({1, 2});
    rank.group.all_reduce(sum.view(), Reduction::sum);
    rank.values(sum);
    if (rank.number == 1) throw Error(Code::internal, "no more");
    for (int i = 0; i < 3; ++i) rank.group.all_reduce(sum.view(), Reduction::sum);
    rank.values(sum);
  });
  EXPECT_NE(errors[0].find("no more"), std::string::npos) << errors[0];
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
    EXPECT_EQ(errors, std::vector<std::string>(ranks));
  }
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

#include "core/comm/worlds.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/comm/segment_exchange.h"

namespace plait {
namespace {

class WorldOf final : public World {
 public:
  WorldOf(std::shared_ptr<Collectives> communicator, int processors, int local_rank)
      : communicator_(std::move(communicator)), processors_(processors), local_rank_(local_rank) {}

  Communicator& communicator() const override { return *communicator_; }
  void broadcast_command(std::span<const std::byte> bytes) override {
    if (rank() != 0) throw Error(Code::invalid_argument, cat("rank ", rank(), " cannot command: rank 0 does"));
    for (int to = 1; to < size(); ++to) communicator_->send_command(bytes, to);
  }
  std::vector<std::byte> next_command() override {
    if (rank() == 0) throw Error(Code::invalid_argument, "rank 0 gets no commands: it gives them");
    return communicator_->receive_command(0, true);
  }
  void report(std::span<const std::byte> bytes) override {
    if (rank() == 0) throw Error(Code::invalid_argument, "rank 0 receives reports and does not send one");
    communicator_->send_command(bytes, 0);
  }
  std::vector<std::byte> next_report(int from, bool patient) override {
    if (rank() != 0) throw Error(Code::invalid_argument, cat("rank ", rank(), " is reported nothing: rank 0 is"));
    return communicator_->receive_command(from, patient);
  }
  int processors() const override { return processors_; }
  int local_rank() const override { return local_rank_; }

 private:
  std::shared_ptr<Collectives> communicator_;
  const int processors_, local_rank_;
};

}  // namespace

std::unique_ptr<World> make_world(std::shared_ptr<Collectives> communicator, int processors, int local_rank) {
  return std::make_unique<WorldOf>(std::move(communicator), std::max(processors, 1), local_rank);
}

std::shared_ptr<Mapping> share_mapping(Exchange& parent, int leader, int64_t bytes,
                                       std::shared_ptr<Mapping> (*create)(int64_t bytes)) {
  struct Message {
    Mapping::Handle handle;
    int32_t leader = 0, failed = 0;
    std::array<char, 200> why = {};
  };
  Message message;
  message.leader = leader;
  std::shared_ptr<Mapping> mapping;
  auto attempt = [&](auto make) {
    try {
      mapping = make();
    } catch (const Error& error) {
      message.failed = 1;
      error.message().copy(message.why.data(), message.why.size() - 1);
    }
  };
  if (leader == parent.rank()) attempt([&] { return create(bytes); });
  if (mapping) message.handle = mapping->handle();
  auto heard = tell_all(parent, message);
  if (leader >= 0 && leader != parent.rank() && !heard[leader].failed)
    attempt([&] { return Mapping::attach(heard[leader].handle); });
  // The leader keeps its mapping at least until all ranks have reached this.
  for (const Message& one : tell_all(parent, message))
    if (one.leader == leader && one.failed)
      throw Error(Code::io, one.why.data(), "CommOptions::share_memory = false does without");
  return mapping;
}

std::unique_ptr<Exchange> make_segment_group(std::shared_ptr<Hub> hub, Exchange& parent, std::vector<int> members,
                                             int rank, std::shared_ptr<Mapping> (*create)(int64_t bytes)) {
  const auto& ranks = parent.members();
  const auto leader = static_cast<int>(std::find(ranks.begin(), ranks.end(), members[0]) - ranks.begin());
  const int64_t bytes = SegmentExchange::bytes(static_cast<int>(members.size()), hub->options().in_flight_bytes);
  auto mapping = share_mapping(parent, leader, bytes, create);
  return std::make_unique<SegmentExchange>(std::move(hub), std::move(mapping), std::move(members), rank);
}

std::vector<std::unique_ptr<World>> make_thread_world(int size, const CommOptions& options) {
  if (size < 1 || size > max_world_size)
    throw Error(Code::invalid_argument, cat("a world of ", size, " threads: 1 to ", max_world_size, " are possible"));
  auto memory = Mapping::within_process(Hub::bytes(size));
  auto steps = Mapping::within_process(SegmentExchange::bytes(size, options.in_flight_bytes));
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  const bool spin = size <= usable_processors();
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < size; ++rank) {
    auto hub = std::make_shared<Hub>(memory, rank, size, spin, options);
    auto make_group = [hub](Exchange& parent, std::vector<int> group, int own) {
      return make_segment_group(hub, parent, std::move(group), own, Mapping::within_process);
    };
    auto exchange = std::make_unique<SegmentExchange>(hub, steps, members, rank);
    worlds.push_back(
        make_world(std::make_shared<Collectives>(hub, std::move(exchange), make_group), usable_processors() / size, rank));
  }
  return worlds;
}

}  // namespace plait

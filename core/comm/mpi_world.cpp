// Processes as ranks: they connect through MPI, find the ranks of their machine, and share memory with these.
#include "core/comm/mpi_world.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "core/base/text.h"
#include "core/base/threads.h"
#include "core/comm/message_exchange.h"
#include "core/comm/segment_exchange.h"
#include "core/comm/worlds.h"

namespace plait {
namespace {

/// A rank's location, exchanged at startup.
struct Place {
  std::array<char, 36> boot = {};  ///< the kernel's boot id, one for each machine; zeros: unknown
  bool shares_memory = false;
  cpu_set_t cores;
};

Place own_place(bool share_memory) {
  Place place;
  CPU_ZERO(&place.cores);
  sched_getaffinity(0, sizeof place.cores, &place.cores);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  file.read(place.boot.data(), place.boot.size());
  place.shares_memory = share_memory && place.boot[0] != 0;
  return place;
}

/// Ranks grouped by machine: home[r] is the lowest rank that shares memory with r.
std::vector<int> homes_of(const std::vector<Place>& places) {
  std::vector<int> homes;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    auto first = std::find_if(places.begin(), places.end(),
                              [&](const Place& p) { return p.shares_memory && p.boot == places[rank].boot; });
    homes.push_back(static_cast<int>(places[rank].shares_memory ? first - places.begin() : rank));
  }
  return homes;
}

/// The ranks of the same machine with lower numbers.
int local_rank_of(const std::vector<Place>& places, int rank) {
  const Place& own = places[static_cast<size_t>(rank)];
  return static_cast<int>(std::count_if(places.begin(), places.begin() + rank,
                                        [&](const Place& p) { return own.boot[0] != 0 && p.boot == own.boot; }));
}

/// The cores of all ranks of a home; mpirun may have bound them.
int cores_of(const std::vector<Place>& places, const std::vector<int>& homes, int home) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (size_t rank = 0; rank < places.size(); ++rank)
    if (homes[rank] == home) CPU_OR(&all, &all, &places[rank].cores);
  return CPU_COUNT(&all);
}

/// Sends notices to ranks of other homes, which share no memory.
void connect(Hub& hub, const std::shared_ptr<MessageChannel>& channel, const std::vector<int>& homes) {
  hub.spread = [channel, homes, own = hub.rank()](const News& news) {
    const auto bytes = std::as_bytes(std::span(&news, 1));
    for (int to = 0; to < channel->size(); ++to) {
      if (homes[to] == homes[own]) continue;
      try {
        channel->send(to, MessageChannel::news_tag, {bytes.begin(), bytes.end()});
      } catch (const Error&) {  // others may still be reachable
      }
    }
  };
  for (int rank = 0; rank < channel->size(); ++rank)
    if (homes[rank] != homes[hub.rank()]) hub.expect_life(rank);
  struct Ear {
    std::mutex mutex;
    MessageChannel::Incoming incoming;
  };
  hub.listen = [channel, &hub, ear = std::make_shared<Ear>()] {
    const std::unique_lock listening(ear->mutex, std::try_to_lock);
    if (!listening) return;
    while (!hub.over() && channel->receive(-1, MessageChannel::news_tag, ear->incoming)) {
      News news;
      std::memcpy(&news, ear->incoming.bytes.data(), sizeof news);
      ear->incoming = {};
      hub.hear(news);
    }
  };
}

/// Makes groups of a world of processes: in shared memory if all members have one home, otherwise by messages.
class ProcessGroups {
 public:
  ProcessGroups(std::shared_ptr<Hub> hub, std::shared_ptr<MessageChannel> channel, std::vector<int> homes)
      : hub_(std::move(hub)), channel_(std::move(channel)), homes_(std::move(homes)) {}

  std::unique_ptr<Exchange> operator()(Exchange& parent, std::vector<int> members, int rank) const {
    const auto numbers = tell_all(parent, channel_->next_group());
    const int64_t group = *std::max_element(numbers.begin(), numbers.end());
    channel_->take_group(group);
    const bool one_home =
        std::all_of(members.begin(), members.end(), [&](int m) { return homes_[m] == homes_[members[0]]; });
    const auto& ranks = parent.members();
    const auto first = static_cast<int>(std::find(ranks.begin(), ranks.end(), members[0]) - ranks.begin());
    const int64_t bytes = SegmentExchange::bytes(static_cast<int>(members.size()), hub_->options().in_flight_bytes);
    // Ranks without shared memory take part in the exchange too.
    auto memory = share_mapping(parent, one_home ? first : -1, bytes, Mapping::between_processes);
    if (memory) return std::make_unique<SegmentExchange>(hub_, std::move(memory), std::move(members), rank);
    return std::make_unique<MessageExchange>(hub_, channel_, std::move(members), rank, group);
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<MessageChannel> channel_;
  std::vector<int> homes_;
};

/// The heartbeat thread: sends four heartbeats per deadline, whatever the rank does.
class Pulse {
 public:
  explicit Pulse(std::shared_ptr<Hub> hub) {
    const auto beat = [hub = std::move(hub)](const std::stop_token& stop) {
      const std::chrono::duration<double> pause(hub->options().deadline_s / 4);
      std::mutex mutex;
      std::condition_variable_any bell;
      std::unique_lock lock(mutex);
      while (!bell.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); }) && !hub->over()) {
        try {
          hub->spread({News::Kind::lives, hub->rank(), static_cast<int32_t>(hub->progress())});
        } catch (...) {  // out of memory: the next one is soon enough
        }
      }
    };
    try {
      thread_ = std::jthread(beat);
    } catch (const std::system_error& why) {
      throw no_thread("the thread of heartbeats", why);
    }
  }

 private:
  std::jthread thread_;  ///< its destructor requests the stop, then joins
};

class MpiWorld final : public World {
 public:
  MpiWorld(std::shared_ptr<Hub> hub, std::shared_ptr<Collectives> communicator,
           std::shared_ptr<MessageChannel> channel, int processors, int local_rank)
      : hub_(std::move(hub)),
        communicator_(communicator),
        world_(make_world(std::move(communicator), processors, local_rank)),
        channel_(std::move(channel)) {
    if (hub_->spread) pulse_.emplace(hub_);
  }

  ~MpiWorld() override {
    pulse_.reset();
    if (hub_->over()) return;  // MPI is not touched: progress may wait for the failed rank
    try {
      // Flushes sent messages while their receivers exist.
      hub_->poll({rank(), [&] { return channel_->unsent_bytes() == 0; }, [] { return "messages being received"; }});
      if (channel_->started_mpi()) communicator_->leave_together();
      else if (hub_->spread) hub_->spread({News::Kind::left, rank()});
      channel_->close_in_order();
    } catch (...) {  // the world is over now
    }
  }
  Communicator& communicator() const override { return *communicator_; }
  void broadcast_command(std::span<const std::byte> bytes) override { world_->broadcast_command(bytes); }
  std::vector<std::byte> next_command() override { return world_->next_command(); }
  void report(std::span<const std::byte> bytes) override { world_->report(bytes); }
  std::vector<std::byte> next_report(int from, bool patient) override { return world_->next_report(from, patient); }
  int processors() const override { return world_->processors(); }
  int local_rank() const override { return world_->local_rank(); }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Collectives> communicator_;
  std::unique_ptr<World> world_;
  std::shared_ptr<MessageChannel> channel_;
  std::optional<Pulse> pulse_;
};

/// The shared memory in which the ranks of a home wait for each other; updates `homes`: ranks that cannot share after
/// all (other PID namespaces) get their own home.
std::shared_ptr<Mapping> meet(Exchange& all, std::vector<int>& homes) {
  const int own = all.rank();
  std::shared_ptr<Mapping> memory;
  try {
    memory = share_mapping(all, homes[own], Hub::bytes(all.size()), Mapping::between_processes);
  } catch (const Error&) {
    homes[own] = own;
  }
  homes = tell_all(all, homes[own]);
  return memory ? memory : Mapping::within_process(Hub::bytes(all.size()));
}

}  // namespace

std::unique_ptr<World> open_mpi_world(const CommOptions& options, const std::string& plugin) {
  auto channel = std::make_shared<MessageChannel>(plugin, options.deadline_s);
  const int rank = channel->rank(), size = channel->size();
  if (size > max_world_size)
    throw Error(Code::unsupported, cat("a world of ", size, " processes: at most ", max_world_size, " are possible"));
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);

  auto alone = std::make_shared<Hub>(Mapping::within_process(Hub::bytes(size)), rank, size, false, options);
  const int64_t group = channel->next_group();
  channel->take_group(group);
  MessageExchange all(alone, channel, members, rank, group);
  const auto places = tell_all(all, own_place(options.share_memory));
  auto homes = homes_of(places);
  auto memory = meet(all, homes);
  const auto neighbours = static_cast<int>(std::count(homes.begin(), homes.end(), homes[rank]));
  const int cores = cores_of(places, homes, homes[rank]);
  const bool spin = neighbours <= cores;
  auto hub = std::make_shared<Hub>(std::move(memory), rank, size, spin, options);
  if (std::any_of(homes.begin(), homes.end(), [&](int home) { return home != homes[0]; }))
    connect(*hub, channel, homes);

  ProcessGroups make_group(hub, channel, homes);
  auto exchange = make_group(all, members, rank);
  return std::make_unique<MpiWorld>(hub, std::make_shared<Collectives>(hub, std::move(exchange), make_group), channel,
                                    cores / neighbours, local_rank_of(places, rank));
}

}  // namespace plait

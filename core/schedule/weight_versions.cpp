#include "core/schedule/weight_versions.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/action_places.h"

namespace plait {
namespace {

using Kind = Action::Kind;

/// The versions of one seat's weights. A version lives while it is the newest, and until its last reader has run.
struct SeatVersions {
  std::vector<size_t> made{0};       ///< by version: position of the update that makes it
  std::vector<size_t> last_read{0};  ///< by version
  std::map<int32_t, size_t> of;      ///< by micro-batch in flight: its version

  int32_t newest() const { return static_cast<int32_t>(made.size()) - 1; }
};

class Versions {
 public:
  Versions(const Schedule& schedule, int32_t most) : schedule_(schedule), most_(most) {}

  int32_t most_of(size_t stage) {
    int32_t out = 1;
    for (const int32_t seat : schedule_.seats[stage]) out = std::max(out, most_of(static_cast<int32_t>(stage), seat));
    return out;
  }

 private:
  int32_t most_of(int32_t stage, int32_t rank) {
    SeatVersions seat;
    const auto& list = schedule_.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].stage == stage) enter(seat, static_cast<size_t>(rank), i);
    return count(seat, static_cast<size_t>(rank));
  }

  void enter(SeatVersions& seat, size_t rank, size_t position) const {
    const Action& one = schedule_.ranks[rank][position];
    if (one.kind == Kind::update) {
      seat.made.push_back(position);
      seat.last_read.push_back(position);
      return;
    }
    if (one.kind == Kind::forward) {
      const int32_t version = one.version < 0 ? seat.newest() : one.version;
      if (version > seat.newest())
        throw action_error(schedule_, rank, position,
                           cat("version ", version, " is not made yet: ", seat.newest(), " updates precede it"));
      seat.of[one.micro_batch] = static_cast<size_t>(version);
    }
    const auto read = seat.of.find(one.micro_batch);
    seat.last_read[read->second] = position;
    if (one.kind == Kind::backward || one.kind == Kind::weight_gradient) seat.of.erase(read);
  }

  /// The most that are live at a time.
  int32_t count(const SeatVersions& seat, size_t rank) const {
    std::map<size_t, int32_t> changes;  // by position
    for (size_t version = 0; version < seat.made.size(); ++version) {
      const bool newest = version + 1 == seat.made.size();
      // Without a reader after the next update, that update works in place.
      const size_t end =
          newest ? schedule_.ranks[rank].size() : std::max(seat.last_read[version] + 1, seat.made[version + 1]);
      ++changes[seat.made[version]];
      --changes[end];
    }
    int32_t live = 0, out = 1;
    for (const auto& [position, change] : changes) {
      live += change;
      out = std::max(out, live);
      if (most_ && live > most_) throw too_many(seat, rank, position, live);
    }
    return out;
  }

  Error too_many(const SeatVersions& seat, size_t rank, size_t position, int32_t live) const {
    size_t oldest = 0;
    while (seat.last_read[oldest] < position) ++oldest;
    return action_error(schedule_, rank, position,
                        cat("its stage would hold ", live, " versions, at most ", most_, " can be held: version ",
                            oldest, " is gone when action ", seat.last_read[oldest], " (",
                            schedule_.ranks[rank][seat.last_read[oldest]].text(), ") reads it"));
  }

  const Schedule& schedule_;
  const int32_t most_;
};

}  // namespace

void find_versions(const Schedule& schedule, int32_t most, ScheduleFacts& facts) {
  Versions versions(schedule, most);
  for (size_t stage = 0; stage < schedule.seats.size(); ++stage) facts.versions.push_back(versions.most_of(stage));
}

}  // namespace plait

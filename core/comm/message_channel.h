#pragma once
// Messages through MPI: used by worlds of several machines, and to set up every world of processes.
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/comm/mpi_table.h"

namespace plait {

/// The functions of MPI, from a plug-in that stays loaded. plugin: a path; "": plait_mpi.so next to this library. MPI is not started.
/// Any thread. Throws Error(not_found) without the plug-in, Error(unsupported) for one of another version.
const plait_mpi_table& load_mpi(const std::string& plugin);

/// The messages of a world of processes. Any thread may send; one receives. No call waits. Throws Error(io) with
/// MPI's message.
class MessageChannel {
 public:
  using Bytes = std::vector<std::byte>;

  /// Loads the plug-in and opens MPI's world. Throws what `load_mpi` throws, Error(io) if MPI fails, Error(closed) when
  /// MPI, started here, waits longer than the deadline for other processes.
  MessageChannel(const std::string& plugin, double deadline_s);
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool started_mpi() const { return started_; }
  /// All ranks leave together: frees resources, and finalizes MPI if it was started here.
  void close_in_order() { in_order_ = true; }

  /// Group numbers, from which tags are made: the next unused one, and marking one as used.
  int64_t next_group() const { return next_group_; }
  void take_group(int64_t group) { next_group_ = group + 1; }
  enum class Kind { step, mail };
  /// Throws Error(unsupported) when MPI runs out of tags: after at least some ten thousand splits.
  int tag(int64_t group, Kind kind) const;
  static constexpr int news_tag = 0;

  void send(int to, int tag, Bytes bytes);
  /// Bytes sent that MPI has neither delivered nor buffered.
  int64_t unsent_bytes();

  /// A message being received.
  struct Incoming {
    Bytes bytes;
    plait_mpi_request* request = nullptr;
    bool complete = false;
  };
  /// Continues to receive the next message of `from` (-1: any); true once complete.
  bool receive(int from, int tag, Incoming& incoming);
  /// Keeps the buffer of a message whose receiver is gone; MPI may still write to it.
  void abandon(Incoming&& incoming);

 private:
  struct Outgoing {
    Bytes bytes;
    plait_mpi_request* request;
  };
  void check(int code) const;
  void go_on_sending();

  const plait_mpi_table* mpi_ = nullptr;
  plait_mpi_world* world_ = nullptr;
  int32_t rank_ = 0, size_ = 0, highest_tag_ = 0, started_ = 0;
  bool in_order_ = false;
  int64_t next_group_ = 1;
  std::mutex mutex_;  ///< serialises MPI calls
  std::list<Outgoing> outgoing_;
};

}  // namespace plait

#pragma once
// Messages through MPI: what worlds of several machines, and the first steps of every world of processes, go through.
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/comm/mpi_table.h"

namespace plait {

/// The messages of a world of processes. Any thread may send; one receives. Nothing waits. Throws Error(io) with MPI's
/// words.
class MessageChannel {
 public:
  using Bytes = std::vector<std::byte>;

  /// Loads the plug-in and opens MPI's world. plugin: a path; "": plait_mpi.so beside the library that this is part of.
  /// Throws Error(not_found) without the plug-in, Error(unsupported) for one of another version, Error(io) if MPI fails,
  /// Error(closed) when MPI, started here, waits longer than the deadline for other processes.
  MessageChannel(const std::string& plugin, double deadline_s);
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool started_mpi() const { return started_; }
  /// All ranks are known to leave together: what was opened is closed, and MPI ended if it was started here.
  void close_in_order() { in_order_ = true; }

  /// Group numbers, which tags are made of: one that this rank did not use yet, and one taken.
  int64_t next_group() const { return next_group_; }
  void take_group(int64_t group) { next_group_ = group + 1; }
  enum class Kind { step, mail };
  /// Throws Error(unsupported) when MPI has no more tags: after some ten thousand splits at the least.
  int tag(int64_t group, Kind kind) const;
  static constexpr int news_tag = 0;

  void send(int to, int tag, Bytes bytes);
  /// Bytes that are sent, but that MPI has neither delivered nor taken into buffers of its own.
  int64_t unsent_bytes();

  /// A message that comes bit by bit.
  struct Incoming {
    Bytes bytes;
    plait_mpi_request* request = nullptr;
    bool complete = false;
  };
  /// Goes on receiving the next message of `from` (-1: anyone); true once it is complete.
  bool receive(int from, int tag, Incoming& incoming);
  /// An incoming message whose receiver is gone; MPI may still write to it.
  void abandon(Incoming&& incoming);

 private:
  struct Outgoing {
    Bytes bytes;
    plait_mpi_request* request;
  };
  void load(const std::string& plugin);
  void check(int code) const;
  void go_on_sending();

  void* library_ = nullptr;
  const plait_mpi_table* mpi_ = nullptr;
  plait_mpi_world* world_ = nullptr;
  int32_t rank_ = 0, size_ = 0, highest_tag_ = 0, started_ = 0;
  bool in_order_ = false;
  int64_t next_group_ = 1;
  std::mutex mutex_;  ///< MPI takes one call at a time
  std::list<Outgoing> outgoing_;
};

}  // namespace plait

#pragma once
#include <deque>
#include <functional>
#include <map>

#include "core/comm/exchange.h"

namespace plait {

/// Makes the exchange of a new group. All its ranks (`members`, world ranks, all in `parent`) call it after `parent`
/// has agreed on the groups; other groups of the same split at the same time. `rank`: in the group.
using GroupMaker = std::function<std::unique_ptr<Exchange>(Exchange& parent, std::vector<int> members, int rank)>;

/// Ends a world; outlives its communicators' calls.
class Hub;

/// The communicator of ranks that are threads or processes: every collective as steps of an exchange, identical for
/// all transports.
class Collectives final : public Communicator {
 public:
  Collectives(std::shared_ptr<Hub> hub, std::unique_ptr<Exchange> exchange, GroupMaker make_group);

  int rank() const override { return exchange_->rank(); }
  int size() const override { return exchange_->size(); }
  int world_rank(int rank) const override { return exchange_->world_rank(rank); }
  void all_reduce(const TensorView& data, Reduction reduction) override;
  void all_gather(const TensorView& part, const TensorView& all) override;
  void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) override;
  void all_to_all(const TensorView& from, const TensorView& to) override;
  void broadcast(const TensorView& data, int root) override;
  void barrier() override;
  void send(const TensorView& data, int to, int64_t tag) override;
  void recv(const TensorView& data, int from, int64_t tag, Patience patience) override;
  double waited_s() const override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(std::string_view message) noexcept override;
  int failed_rank() const noexcept override;
  void note_device_wait(double waited_s) noexcept override;

  /// A barrier before ranks leave, for worlds that must end together.
  void leave_together();

  /// Opaque bytes of a length unknown to the receiver. `patient`: waits without a deadline (world.h).
  void send_command(std::span<const std::byte> bytes, int to);
  std::vector<std::byte> receive_command(int from, bool patient);

 private:
  void reduce_at_once(const TensorView& data, const CallHeader& call, Reduction reduction);
  void reduce_by_slices(const TensorView& data, const CallHeader& call, Reduction reduction);
  void check_rank(int rank, std::string_view what) const;
  void check_reducible(const TensorView& data, std::string_view what) const;
  void check_parts(const TensorView& part, const TensorView& all, std::string_view what) const;
  void collect(const std::byte* own);
  /// Messages that arrived before the one wanted, in order.
  struct Aside {
    CallHeader call;
    std::vector<std::byte> bytes;
  };
  void set_aside(int from, const CallHeader& sent, int64_t wanted);
  void expect_same(int from, const CallHeader& sent, const CallHeader& own);
  std::string awaited_text(int from, const CallHeader& call) const;
  int64_t scattered_elements(int bits) const;

  std::shared_ptr<Hub> hub_;
  std::unique_ptr<Exchange> exchange_;
  GroupMaker make_group_;
  std::vector<const std::byte*> parts_;     ///< of the current step, by rank
  std::map<int, std::deque<Aside>> aside_;  ///< by sender
  int64_t aside_bytes_ = 0;
};

/// All-gathers `bytes` bytes per rank, at most a slot, in rank order; for agreement among ranks.
std::vector<std::byte> tell_all(Exchange& exchange, std::span<const std::byte> bytes);

template <class T>
std::vector<T> tell_all(Exchange& exchange, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto bytes = tell_all(exchange, std::as_bytes(std::span(&value, 1)));
  std::vector<T> out(exchange.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace plait

#pragma once
#include "core/comm/exchange.h"
#include "core/comm/hub.h"
#include "core/comm/message_channel.h"

namespace plait {

/// An exchange by messages: in a step every rank sends every other one message, header first.
class MessageExchange final : public Exchange {
 public:
  /// `group`: a unique number among the groups of these ranks.
  MessageExchange(std::shared_ptr<Hub> hub, std::shared_ptr<MessageChannel> channel, std::vector<int> members,
                  int rank, int64_t group);
  ~MessageExchange() override;

  int64_t slot_bytes() const override;
  std::byte* slot() override {
    hub_->check();
    return slot_.data();
  }
  void publish(const CallHeader& call, SlotLayout pattern, int64_t bytes) override;
  const std::byte* peer(int peer) override;
  void finish() override;
  void post(int to, const CallHeader& call, std::span<const std::byte> bytes) override;
  CallHeader await_mail(int from, FunctionRef<std::string()> what, Patience patience) override;
  void take_mail(int from, std::byte* out) override;

 private:
  using Bytes = MessageChannel::Bytes;
  void send(int to, int tag, Bytes bytes);
  void wait_for(int from, int tag, MessageChannel::Incoming& incoming, FunctionRef<std::string()> what,
                Patience patience);

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<MessageChannel> channel_;
  const int step_tag_, mail_tag_;
  CallHeader call_;
  Bytes slot_;
  std::vector<MessageChannel::Incoming> steps_, mail_;  ///< by rank of the group
};

}  // namespace plait

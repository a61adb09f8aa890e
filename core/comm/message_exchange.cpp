#include "core/comm/message_exchange.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "core/base/text.h"

namespace plait {
namespace {

constexpr int64_t message_slot = 256 << 10;

/// `Header`: CallHeader of steps, MailHeader of mail.
template <class Header>
MessageChannel::Bytes message(const Header& header, std::span<const std::byte> bytes) {
  MessageChannel::Bytes out(sizeof header + bytes.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!bytes.empty()) std::memcpy(out.data() + sizeof header, bytes.data(), bytes.size());
  return out;
}

template <class Header>
Header header_of(const MessageChannel::Incoming& incoming) {
  Header header;
  std::memcpy(&header, incoming.bytes.data(), sizeof header);
  return header;
}

}  // namespace

MessageExchange::MessageExchange(std::shared_ptr<Hub> hub, std::shared_ptr<MessageChannel> channel,
                                 std::vector<int> members, int rank, int64_t group)
    : Exchange(std::move(members), rank),
      hub_(std::move(hub)),
      channel_(std::move(channel)),
      step_tag_(channel_->tag(group, MessageChannel::Kind::step)),
      mail_tag_(channel_->tag(group, MessageChannel::Kind::mail)),
      slot_(message_slot),
      steps_(size()),
      mail_(size()) {}

MessageExchange::~MessageExchange() {
  for (auto* incoming : {&steps_, &mail_})
    for (auto& one : *incoming) channel_->abandon(std::move(one));
}

int64_t MessageExchange::slot_bytes() const { return message_slot; }

void MessageExchange::publish(const CallHeader& call, SlotLayout pattern, int64_t bytes) {
  hub_->check();
  hub_->pass_links(members_, bytes);
  hub_->delay();
  call_ = call;
  for (int to = 0; to < size(); ++to) {
    steps_[to].complete = false;
    const int64_t begin = pattern == SlotLayout::scatter ? bytes * to : 0;
    if (to != rank_) send(to, step_tag_, message(call, {slot() + begin, static_cast<size_t>(bytes)}));
  }
  hub_->moved();
}

// A rank that MPI cannot reach has failed; the hub notifies the other ranks.
void MessageExchange::send(int to, int tag, Bytes bytes) {
  try {
    channel_->send(members_[to], tag, std::move(bytes));
  } catch (const Error& error) {
    if (error.code() != Code::io) throw;
    hub_->fail(Code::io, members_[to], cat("rank ", members_[to], " cannot be reached: ", error.message()));
    hub_->check();
  }
}

void MessageExchange::wait_for(int from, int tag, MessageChannel::Incoming& incoming, FunctionRef<std::string()> what,
                               Patience patience) {
  try {
    hub_->poll({members_[from], [&] { return channel_->receive(members_[from], tag, incoming); }, what, patience});
  } catch (const Error& error) {
    if (error.code() != Code::io) throw;
    hub_->fail(Code::io, members_[from], cat("nothing comes from rank ", members_[from], ": ", error.message()));
    hub_->check();
  }
  hub_->delay();
}

const std::byte* MessageExchange::peer(int peer) {
  auto& incoming = steps_[peer];
  if (!incoming.complete) {
    wait_for(
        peer, step_tag_, incoming, [&] { return call_.text(); }, Patience::deadline);
    const auto call = header_of<CallHeader>(incoming);
    if (!(call == call_)) {
      hub_->fail(Code::invalid_argument, members_[peer], mismatch_text(members_[rank_], call_, members_[peer], call));
      hub_->check();
    }
  }
  return incoming.bytes.data() + sizeof call_;
}

void MessageExchange::finish() {
  for (int other = 0; other < size(); ++other)
    if (other != rank_) peer(other);
}

void MessageExchange::post(int to, const CallHeader& call, std::span<const std::byte> bytes) {
  if (hub_->listen) hub_->listen();
  hub_->look_around();
  hub_->check();
  const int64_t limit = std::min<int64_t>(hub_->options().in_flight_bytes, INT_MAX - sizeof(MailHeader));
  const auto more = static_cast<int64_t>(bytes.size());
  if (channel_->unsent_bytes() + more > limit)
    throw Error(Code::overloaded,
                cat("rank ", hub_->rank(), " cannot send ", human_bytes(more), " more: of ", human_bytes(limit),
                    " in flight, too much is not yet received"),
                "receive earlier, or send less at once");
  hub_->delay();
  const int64_t ready_ns = call.call == Call::send ? hub_->mail_ready_ns(members_[to], call.bytes) : 0;
  send(to, mail_tag_, message(MailHeader{call, ready_ns}, bytes));
  hub_->moved();
}

CallHeader MessageExchange::await_mail(int from, FunctionRef<std::string()> what, Patience patience) {
  hub_->check();
  wait_for(from, mail_tag_, mail_[from], what, patience);
  const auto head = header_of<MailHeader>(mail_[from]);
  if (head.ready_ns) hub_->wait_until(head.ready_ns);
  return head.call;
}

void MessageExchange::take_mail(int from, std::byte* out) {
  auto& bytes = mail_[from].bytes;
  constexpr size_t head = sizeof(MailHeader);
  if (bytes.size() > head) std::memcpy(out, bytes.data() + head, bytes.size() - head);
  mail_[from] = {};
  hub_->moved();
}

}  // namespace plait

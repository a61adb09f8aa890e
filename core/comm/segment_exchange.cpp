#include "core/comm/segment_exchange.h"

#include <algorithm>
#include <cstring>

#include "core/base/text.h"

namespace plait {
namespace {

constexpr int64_t page = 4096;
// The slots of two ranks fit an L2 cache of 1 MiB together with the tensors' pieces. 32 and 128 KiB are no faster.
constexpr int64_t slot_capacity = 64 << 10;
constexpr uint64_t box_letters = 1024;

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// One cache line: a rank's call arrives together with its step number. As with slots, a rank that publishes step s
// has seen all others in step s - 1, which are done with step s - 2: two of each suffice.
struct alignas(64) SegmentExchange::Line {
  std::atomic<uint64_t> steps;  ///< published so far
  CallHeader calls[2];
};

struct alignas(64) SegmentExchange::Box {
  std::atomic<uint64_t> sent;
  int64_t offsets[box_letters];  ///< in the sender's heap, of message n at n % box_letters
};

struct alignas(64) SegmentExchange::Letter {
  std::atomic<uint32_t> received;
  MailHeader head;
  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

// Lines, boxes, slots, heaps; each starts a page, so that unused ones take no memory.
namespace {
int64_t lines_bytes(int size) { return rounded_up(size * 64, page); }
int64_t box_stride() { return rounded_up(64 + box_letters * 8, page); }
int64_t slots_at(int size) { return lines_bytes(size) + int64_t{size} * size * box_stride(); }
int64_t heaps_at(int size) { return slots_at(size) + 2 * size * slot_capacity; }
}  // namespace

int64_t SegmentExchange::bytes(int size, int64_t in_flight_bytes) {
  static_assert(sizeof(Line) == 64, "lines_bytes counts one cache line a rank");
  return heaps_at(size) + size * rounded_up(in_flight_bytes, page);
}

SegmentExchange::SegmentExchange(std::shared_ptr<Hub> hub, std::shared_ptr<Mapping> memory, std::vector<int> members,
                                 int rank)
    : Exchange(std::move(members), rank),
      hub_(std::move(hub)),
      memory_(std::move(memory)),
      looked_(size()),
      sent_(size()),
      received_(size()) {}

SegmentExchange::Line& SegmentExchange::line(int rank) const {
  return reinterpret_cast<Line*>(memory_->data())[rank];
}
SegmentExchange::Box& SegmentExchange::box(int from, int to) const {
  return *reinterpret_cast<Box*>(memory_->data() + lines_bytes(size()) +
                                 (int64_t{from} * size() + to) * box_stride());
}
// Two ranks alternate between all four slots: each writes where it read two steps before. So a cache line moves to
// the other core once a step, when read, and is owned there. With own slots a rank would fetch every line back before
// writing, which dominates: 16 KiB take 10 us that way, 2 us this way. More ranks fetch lines back either way.
std::byte* SegmentExchange::slot_of(int rank) const {
  const uint64_t place = (static_cast<uint64_t>(rank) + step_ / 2) % static_cast<uint64_t>(size());
  return memory_->data() + slots_at(size()) + static_cast<int64_t>(2 * place + step_ % 2) * slot_capacity;
}
SegmentExchange::Letter* SegmentExchange::letter(int of, int64_t offset) const {
  const int64_t heap = heaps_at(size()) + of * rounded_up(hub_->options().in_flight_bytes, page);
  return reinterpret_cast<Letter*>(memory_->data() + heap + offset);
}

int64_t SegmentExchange::slot_bytes() const { return slot_capacity; }

// Once the world is over, a step may be incomplete and other ranks may still read its slots.
std::byte* SegmentExchange::slot() {
  hub_->check();
  return slot_of(rank_);
}

void SegmentExchange::publish(const CallHeader& call, SlotLayout pattern, int64_t bytes) {
  hub_->check();  // a step without bytes does not call slot()
  hub_->pass_links(members_, bytes);
  hub_->delay();
  call_ = call;
  pattern_ = pattern;
  part_bytes_ = bytes;
  Line& mine = line(rank_);
  mine.calls[step_ & 1] = call;
  mine.steps.store(step_ + 1, std::memory_order_seq_cst);
  hub_->moved();
  hub_->delay();
  for (int member : members_) hub_->ring_for(member);
}

std::string SegmentExchange::step_text() const { return cat(call_.text(), " (step ", step_, " of the group)"); }

const std::byte* SegmentExchange::peer(int peer) {
  if (looked_[peer] != step_ + 1) {
    const Line& its = line(peer);
    hub_->wait({members_[peer], [&] { return its.steps.load(std::memory_order_acquire) > step_; },
                [&] { return step_text(); }});
    hub_->delay();
    const CallHeader& call = its.calls[step_ & 1];
    if (!(call == call_)) {
      hub_->fail(Code::invalid_argument, members_[peer], mismatch_text(members_[rank_], call_, members_[peer], call));
      hub_->check();
    }
    looked_[peer] = step_ + 1;
  }
  return slot_of(peer) + (pattern_ == SlotLayout::scatter ? part_bytes_ * rank_ : 0);
}

void SegmentExchange::finish() {
  for (int other = 0; other < size(); ++other)
    if (other != rank_) peer(other);
  ++step_;
}

// First fit: reuses memory, and touches hardly more of it than is in flight.
int64_t SegmentExchange::place_for(int64_t bytes) {
  std::erase_if(posted_, [&](const Posted& one) {
    return letter(rank_, one.offset)->received.load(std::memory_order_acquire) != 0;
  });
  int64_t offset = 0;
  auto next = posted_.begin();
  for (; next != posted_.end() && next->offset - offset < bytes; ++next) offset = next->offset + next->bytes;
  if (offset + bytes > hub_->options().in_flight_bytes)
    throw Error(Code::overloaded,
                cat("rank ", hub_->rank(), " cannot send ", human_bytes(bytes), " more: of ",
                    human_bytes(hub_->options().in_flight_bytes), " in flight, too much is not yet received"),
                "raise CommOptions::in_flight_bytes, or receive earlier");
  posted_.insert(next, {offset, bytes, -1});
  return offset;
}

void SegmentExchange::post(int to, const CallHeader& call, std::span<const std::byte> bytes) {
  hub_->look_around();
  hub_->check();
  const int64_t offset = place_for(static_cast<int64_t>(sizeof(Letter)) + rounded_up(bytes.size(), 64));
  auto own = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& one) { return one.offset == offset; });
  const auto waiting = std::count_if(posted_.begin(), posted_.end(), [&](const Posted& one) { return one.to == to; });
  if (waiting >= static_cast<int64_t>(box_letters)) {
    posted_.erase(own);
    throw Error(Code::overloaded,
                cat("rank ", hub_->rank(), " has ", waiting, " messages to rank ", members_[to],
                    " in flight; more do not fit"),
                "receive earlier");
  }
  own->to = to;
  Letter* letter = this->letter(rank_, offset);
  letter->received.store(0, std::memory_order_relaxed);
  letter->head = {call, call.call == Call::send ? hub_->mail_ready_ns(members_[to], call.bytes) : 0};
  if (!bytes.empty()) std::memcpy(letter->bytes(), bytes.data(), bytes.size());
  hub_->delay();
  Box& box = this->box(rank_, to);
  box.offsets[sent_[to] % box_letters] = offset;
  box.sent.store(++sent_[to], std::memory_order_seq_cst);
  hub_->moved();
  hub_->ring_for(members_[to]);
}

CallHeader SegmentExchange::await_mail(int from, FunctionRef<std::string()> what, Patience patience) {
  hub_->check();
  const Box& box = this->box(from, rank_);
  const uint64_t seen = received_[from];
  hub_->wait({members_[from], [&] { return box.sent.load(std::memory_order_acquire) > seen; }, what, patience});
  hub_->delay();
  const MailHeader& head = letter(from, box.offsets[seen % box_letters])->head;
  if (head.ready_ns) hub_->wait_until(head.ready_ns);
  return head.call;
}

void SegmentExchange::take_mail(int from, std::byte* out) {
  const Box& box = this->box(from, rank_);
  Letter* letter = this->letter(from, box.offsets[received_[from]++ % box_letters]);
  const int64_t bytes = letter->head.call.bytes;
  if (bytes) std::memcpy(out, letter->bytes(), static_cast<size_t>(bytes));
  letter->received.store(1, std::memory_order_release);
  hub_->moved();
}

}  // namespace plait

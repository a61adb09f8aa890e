#include "core/comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "core/base/text.h"
#include "core/comm/hub.h"
#include "core/comm/reduce.h"

namespace plait {
namespace {

// Limit for reducing at once, where every rank reads all data of all others; by slices, each rank reduces one part
// and shares it. Two ranks move equally many bytes either way; more ranks gain by slices once bandwidth dominates
// latency.
bool is_at_once(int ranks, int64_t bytes) { return ranks <= 2 || bytes <= 64 << 10; }

CallHeader header(Call call, const TensorView& data, Reduction reduction = Reduction::sum, int root = 0) {
  return {call, reduction, static_cast<uint16_t>(root), static_cast<int32_t>(data.dtype), data.bytes()};
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Calls step(begin, bytes) for each piece of at most `limit` bytes; once if empty, since ranks compare calls.
template <class Step>
void in_pieces(int64_t bytes, int64_t limit, Step step) {
  int64_t begin = 0;
  do {
    const int64_t piece = std::min(limit, bytes - begin);
    step(begin, piece);
    begin += piece;
  } while (begin < bytes);
}

}  // namespace

std::vector<std::byte> tell_all(Exchange& exchange, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  copy_bytes(exchange.slot(), bytes.data(), size);
  exchange.publish({.call = Call::split}, SlotLayout::share, size);
  std::vector<std::byte> out(bytes.size() * exchange.size());
  for (int rank = 0; rank < exchange.size(); ++rank)
    copy_bytes(out.data() + size * rank, rank == exchange.rank() ? bytes.data() : exchange.peer(rank), size);
  exchange.finish();
  return out;
}

Collectives::Collectives(std::shared_ptr<Hub> hub, std::unique_ptr<Exchange> exchange, GroupMaker make_group)
    : hub_(std::move(hub)),
      exchange_(std::move(exchange)),
      make_group_(std::move(make_group)),
      parts_(exchange_->size()) {}

void Collectives::check_rank(int rank, std::string_view what) const {
  if (rank >= 0 && rank < size()) return;
  throw Error(Code::invalid_argument, cat(what, " ", rank, ": this group has ranks 0 to ", size() - 1));
}

void Collectives::check_reducible(const TensorView& data, std::string_view what) const {
  if (is_reducible(data.dtype)) return;
  throw Error(Code::invalid_argument,
              cat(what, " of ", dtype_name(data.dtype), ": there is no sum, max or min of it"),
              "f32, f64, f16, bf16 and integers can be reduced");
}

void Collectives::check_parts(const TensorView& part, const TensorView& all, std::string_view what) const {
  const int64_t elements = part.elements();
  if (part.dtype != all.dtype || all.elements() != elements * size())
    throw Error(Code::invalid_argument, cat(what, ": ", size(), " parts ", dtype_name(part.dtype), part.shape.text(),
                                            " are not ", dtype_name(all.dtype), all.shape.text()));
  if (elements * dtype_bits(part.dtype) % 8)
    throw Error(Code::invalid_argument,
                cat(what, ": a part of ", elements, " elements of ", dtype_name(part.dtype), " is no whole byte"));
}

/// Collects the parts of all ranks in this step; this rank's is `own`.
void Collectives::collect(const std::byte* own) {
  for (int peer = 0; peer < size(); ++peer) parts_[peer] = peer == rank() ? own : exchange_->peer(peer);
}

/// Elements of a rank's part when a slot holds one for each; parts begin at multiples of 64 bytes.
int64_t Collectives::scattered_elements(int bits) const {
  return exchange_->slot_bytes() / size() / 64 * 64 * 8 / bits;
}

void Collectives::all_reduce(const TensorView& data, Reduction reduction) {
  check_reducible(data, "all_reduce");
  const CallHeader call = header(Call::all_reduce, data, reduction);
  if (is_at_once(size(), call.bytes)) reduce_at_once(data, call, reduction);
  else reduce_by_slices(data, call, reduction);
}

void Collectives::reduce_at_once(const TensorView& data, const CallHeader& call, Reduction reduction) {
  const int64_t element_bytes = dtype_bits(data.dtype) / 8;
  in_pieces(call.bytes, exchange_->slot_bytes(), [&](int64_t begin, int64_t bytes) {
    std::byte* own = data.data + begin;
    copy_bytes(exchange_->slot(), own, bytes);
    exchange_->publish(call, SlotLayout::share, bytes);
    collect(own);
    reduce_in_order(data.dtype, reduction, parts_, bytes / element_bytes, own);
    exchange_->finish();
  });
}

// Per slot of data: reduce_scatter, then all_gather of the result.
void Collectives::reduce_by_slices(const TensorView& data, const CallHeader& call, Reduction reduction) {
  const int64_t element_bytes = dtype_bits(data.dtype) / 8;
  const int64_t limit = scattered_elements(dtype_bits(data.dtype)) * size() * element_bytes;
  in_pieces(call.bytes, limit, [&](int64_t begin, int64_t bytes) {
    const int64_t slice = (bytes / element_bytes + size() - 1) / size() * element_bytes;
    auto slice_bytes = [&](int of) { return std::clamp<int64_t>(bytes - of * slice, 0, slice); };
    auto slice_of = [&](int of) { return data.data + begin + of * slice; };
    std::byte* own = slice_of(rank());
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) copy_bytes(exchange_->slot() + peer * slice, slice_of(peer), slice_bytes(peer));
    exchange_->publish(call, SlotLayout::scatter, slice);
    collect(own);
    exchange_->finish();
    // The previous step's slots stay readable while the next is filled.
    reduce_in_order(data.dtype, reduction, parts_, slice_bytes(rank()) / element_bytes, own);
    copy_bytes(exchange_->slot(), own, slice_bytes(rank()));
    exchange_->publish(call, SlotLayout::share, slice);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) copy_bytes(slice_of(peer), exchange_->peer(peer), slice_bytes(peer));
    exchange_->finish();
  });
}

void Collectives::all_gather(const TensorView& part, const TensorView& all) {
  check_parts(part, all, "all_gather");
  const CallHeader call = header(Call::all_gather, part);
  in_pieces(call.bytes, exchange_->slot_bytes(), [&](int64_t begin, int64_t bytes) {
    copy_bytes(exchange_->slot(), part.data + begin, bytes);
    exchange_->publish(call, SlotLayout::share, bytes);
    collect(part.data + begin);
    for (int peer = 0; peer < size(); ++peer) copy_bytes(all.data + peer * call.bytes + begin, parts_[peer], bytes);
    exchange_->finish();
  });
}

void Collectives::reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) {
  check_parts(part, all, "reduce_scatter");
  check_reducible(all, "reduce_scatter");
  const CallHeader call = header(Call::reduce_scatter, part, reduction);
  const int64_t element_bytes = dtype_bits(all.dtype) / 8;
  in_pieces(call.bytes, scattered_elements(dtype_bits(all.dtype)) * element_bytes, [&](int64_t begin, int64_t bytes) {
    auto part_of = [&](int of) { return all.data + of * call.bytes + begin; };
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) copy_bytes(exchange_->slot() + peer * bytes, part_of(peer), bytes);
    exchange_->publish(call, SlotLayout::scatter, bytes);
    collect(part_of(rank()));
    reduce_in_order(all.dtype, reduction, parts_, bytes / element_bytes, part.data + begin);
    exchange_->finish();
  });
}

void Collectives::all_to_all(const TensorView& from, const TensorView& to) {
  TensorView part = from;  // one rank's
  part.shape = {from.elements() / size()};
  check_parts(part, from, "all_to_all");
  check_parts(part, to, "all_to_all");
  const CallHeader call = header(Call::all_to_all, part);
  in_pieces(call.bytes, exchange_->slot_bytes() / size() / 64 * 64, [&](int64_t begin, int64_t bytes) {
    auto part_of = [&](const TensorView& all, int of) { return all.data + of * call.bytes + begin; };
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) copy_bytes(exchange_->slot() + peer * bytes, part_of(from, peer), bytes);
    exchange_->publish(call, SlotLayout::scatter, bytes);
    collect(part_of(from, rank()));
    for (int peer = 0; peer < size(); ++peer) copy_bytes(part_of(to, peer), parts_[peer], bytes);
    exchange_->finish();
  });
}

void Collectives::broadcast(const TensorView& data, int root) {
  check_rank(root, "broadcast from rank");
  const CallHeader call = header(Call::broadcast, data, Reduction::sum, root);
  in_pieces(call.bytes, exchange_->slot_bytes(), [&](int64_t begin, int64_t bytes) {
    if (rank() == root) copy_bytes(exchange_->slot(), data.data + begin, bytes);
    exchange_->publish(call, SlotLayout::share, rank() == root ? bytes : 0);
    if (rank() != root) copy_bytes(data.data + begin, exchange_->peer(root), bytes);
    exchange_->finish();
  });
}

void Collectives::barrier() {
  exchange_->publish({.call = Call::barrier}, SlotLayout::share, 0);
  exchange_->finish();
}

void Collectives::leave_together() {
  exchange_->publish({}, SlotLayout::share, 0);
  exchange_->finish();
}

void Collectives::send(const TensorView& data, int to, int64_t tag) {
  check_rank(to, "send to rank");
  CallHeader call = header(Call::send, data);
  call.tag = tag;
  exchange_->post(to, call, {data.data, static_cast<size_t>(call.bytes)});
}

void Collectives::recv(const TensorView& data, int from, int64_t tag, Patience patience) {
  check_rank(from, "recv from rank");
  CallHeader call = header(Call::send, data);
  call.tag = tag;
  auto& aside = aside_[from];
  const auto early = std::find_if(aside.begin(), aside.end(), [&](const Aside& one) { return one.call.tag == tag; });
  if (early != aside.end()) {
    hub_->check();
    expect_same(from, early->call, call);
    copy_bytes(data.data, early->bytes.data(), call.bytes);
    aside_bytes_ -= call.bytes;
    aside.erase(early);
    return;
  }
  while (true) {
    const CallHeader sent = exchange_->await_mail(
        from, [&] { return awaited_text(from, call); }, patience);
    if (sent.call != Call::send || sent.tag == tag) {
      expect_same(from, sent, call);
      return exchange_->take_mail(from, data.data);
    }
    set_aside(from, sent, tag);
  }
}

void Collectives::expect_same(int from, const CallHeader& sent, const CallHeader& own) {
  if (sent == own) return;
  hub_->fail(
      Code::invalid_argument, world_rank(from),
      cat("rank ", world_rank(rank()), " receives ", dtype_name(static_cast<DType>(own.dtype)), ", ", own.bytes,
          " bytes", own.tag ? cat(", tag ", own.tag) : "", ", rank ", world_rank(from), " calls ", sent.text()));
  hub_->check();
}

void Collectives::set_aside(int from, const CallHeader& sent, int64_t wanted) {
  constexpr size_t most_messages = 1024;
  auto& aside = aside_[from];
  if (aside_bytes_ + sent.bytes > hub_->options().in_flight_bytes || aside.size() >= most_messages)
    throw Error(Code::overloaded,
                cat("rank ", world_rank(rank()), " waits for tag ", wanted, " of rank ", world_rank(from),
                    ", and can set aside no more: ", aside.size(), " messages of it, ", human_bytes(aside_bytes_),
                    " in all; the next one is ", sent.text()),
                "receive in the order of sending, or raise CommOptions::in_flight_bytes");
  Aside one{sent, std::vector<std::byte>(static_cast<size_t>(sent.bytes))};
  exchange_->take_mail(from, one.bytes.data());
  aside_bytes_ += sent.bytes;
  aside.push_back(std::move(one));
}

/// "send(f32, 16 bytes, tag 3), having set aside tags 4, 5"
std::string Collectives::awaited_text(int from, const CallHeader& call) const {
  std::string out = call.text();
  constexpr size_t most_named = 8;
  const auto& aside = aside_.at(from);
  for (size_t i = 0; i < aside.size() && i < most_named; ++i)
    append(out, cat(i ? ", " : ", having set aside tags ", aside[i].call.tag));
  if (aside.size() > most_named) append(out, cat(" and ", aside.size() - most_named, " more"));
  return out;
}

void Collectives::send_command(std::span<const std::byte> bytes, int to) {
  exchange_->post(to, {.call = Call::command, .bytes = static_cast<int64_t>(bytes.size())}, bytes);
}

std::vector<std::byte> Collectives::receive_command(int from, bool patient) {
  const CallHeader call{.call = Call::command};
  const CallHeader sent = exchange_->await_mail(
      from, [&] { return call.text(); }, patient ? Patience::unlimited : Patience::deadline);
  if (sent.call != Call::command) {
    hub_->fail(Code::invalid_argument, world_rank(from),
               mismatch_text(world_rank(from), sent, world_rank(rank()), call));
    hub_->check();
  }
  std::vector<std::byte> bytes(sent.bytes);
  exchange_->take_mail(from, bytes.data());
  return bytes;
}

double Collectives::waited_s() const { return static_cast<double>(hub_->waited_ns()) * 1e-9; }

std::unique_ptr<Communicator> Collectives::split(int color, int key) {
  struct Claim {
    int32_t color, key;
  };
  const auto claims = tell_all(*exchange_, Claim{color, key});
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other)
    if (claims[other].color == color) ranks.push_back(other);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return claims[a].key < claims[b].key; });
  const auto own = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  for (int& member : ranks) member = world_rank(member);
  return std::make_unique<Collectives>(hub_, make_group_(*exchange_, std::move(ranks), static_cast<int>(own)),
                                       make_group_);
}

void Collectives::abort(std::string_view message) noexcept {
  try {
    hub_->fail(Code::closed, hub_->rank(), cat("rank ", hub_->rank(), " aborted the world: ", message));
  } catch (...) {  // no memory for the message
    hub_->fail(Code::closed, hub_->rank(), message);
  }
}

int Collectives::failed_rank() const noexcept {
  hub_->notice();
  return hub_->culprit();
}

void Collectives::note_device_wait(double waited_s) noexcept { hub_->note_device_wait(waited_s); }

}  // namespace plait

// What the executor does together with other ranks. Communicators know flat arrays in the order of ranks; blocks of a
// dimension that is not the first are put together, and taken apart, here.
#include <algorithm>
#include <cstring>

#include "core/base/block.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/executor.h"

namespace plait {
namespace {

TensorView flat(std::byte* data, DType dtype, int64_t elements) { return {data, dtype, {elements}}; }
TensorView flat(const TensorView& view) { return flat(view.data, view.dtype, view.elements()); }

/// Block `index` of the parts that lie one behind the other, each as `part`.
TensorView nth(const TensorView& part, std::byte* parts, int index) {
  return {parts + index * part.bytes(), part.dtype, part.shape};
}

/// Whether the blocks of a dim lie one behind the other: it is the first but for dims of size 1.
bool leads(const Shape& shape, int dim) { return shape.elements(0, dim) == 1; }

}  // namespace

std::string_view kind_name(CollectiveCall::Kind kind) {
  static constexpr std::string_view names[] = {"AllReduce", "ReduceScatter", "AllGather", "AllToAll", "Shard"};
  return names[static_cast<size_t>(kind)];
}

int64_t CollectiveCall::room_bytes(const TensorView& in, const TensorView& out) const {
  switch (kind) {
    case Kind::all_gather: return leads(in.shape, dim) ? 0 : out.bytes();
    case Kind::reduce_scatter: return leads(in.shape, dim) ? 0 : in.bytes();
    case Kind::all_to_all: return 2 * in.bytes();
    case Kind::all_reduce:
    case Kind::shard: return 0;
  }
  return 0;
}

void carry_out(const CollectiveCall& call, Communicator& group, const TensorView& in, const TensorView& out,
               std::span<std::byte> room) {
  using Kind = CollectiveCall::Kind;
  std::byte* parts = room.data();
  switch (call.kind) {
    case Kind::all_reduce:
      if (in.bytes()) std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
      return group.all_reduce(flat(out), call.reduction);
    case Kind::all_gather: {
      if (leads(in.shape, call.dim)) return group.all_gather(flat(in), flat(out));
      group.all_gather(flat(in), flat(parts, in.dtype, out.elements()));
      for (int k = 0; k < call.parts; ++k) put_block(out, call.dim, k * in.shape[call.dim], nth(in, parts, k));
      return;
    }
    case Kind::reduce_scatter: {
      if (leads(in.shape, call.dim)) return group.reduce_scatter(flat(in), flat(out), call.reduction);
      for (int k = 0; k < call.parts; ++k) take_block(in, call.dim, k * out.shape[call.dim], nth(out, parts, k));
      return group.reduce_scatter(flat(parts, in.dtype, in.elements()), flat(out), call.reduction);
    }
    case Kind::all_to_all: {
      TensorView part{nullptr, in.dtype, in.shape};
      part.shape[call.to_dim] = out.shape[call.to_dim];
      std::byte* from = parts + in.bytes();
      for (int k = 0; k < call.parts; ++k)
        take_block(in, call.to_dim, k * part.shape[call.to_dim], nth(part, parts, k));
      group.all_to_all(flat(parts, in.dtype, in.elements()), flat(from, in.dtype, in.elements()));
      for (int k = 0; k < call.parts; ++k) put_block(out, call.dim, k * in.shape[call.dim], nth(part, from, k));
      return;
    }
    case Kind::shard: return;
  }
}

/// What goes on beside the run is done by the courier in the order in which it was begun, and so is whatever is said before it
/// has ended: one thread at a time calls the communicators, and the order is the program's.
void Executor::collective(size_t index) {
  const Instruction& instruction = program_->instructions[index];
  const CollectiveCall& call = instruction.call;
  const TensorView &in = in_[0], &out = out_[0];
  if (call.kind == CollectiveCall::Kind::shard) return take_block(in, call.dim, call.part * out.shape[call.dim], out);

  const bool beside = instruction.awaited >= 0 && beside_ && !watch_;
  std::span<std::byte> room;
  if (const int64_t bytes = call.room_bytes(in, out))
    room = instruction.room >= 0
               ? std::span(views_[static_cast<size_t>(instruction.room)].data, static_cast<size_t>(bytes))
               : scratch(bytes);
  Communicator& group = *groups_[static_cast<size_t>(call.group)];
  if (!beside && under_way_.empty()) return carry_out(call, group, in, out, room);

  if (!courier_) courier_ = std::make_unique<Courier>();
  UnderWay& one = under_way_.emplace_back();
  one.awaited = beside ? instruction.awaited : static_cast<int32_t>(index);
  one.event.name = kind_name(call.kind);
  one.event.collective = one.event.beside = true;
  one.number = courier_->give([&call, &group, in, out, room, &event = one.event] {
    const double waited = group.waited_s();
    event.begin = monotonic_s();
    carry_out(call, group, in, out, room);
    event.end = monotonic_s();
    event.waited = group.waited_s() - waited;
  });
  due_ = std::min(due_, one.awaited);
  if (!beside) await(one.awaited);
}

/// What has to be done before instruction `next`, of which there is something.
void Executor::await(int32_t next) {
  auto last =
      std::find_if(under_way_.rbegin(), under_way_.rend(), [&](const UnderWay& one) { return one.awaited <= next; });
  const std::string_view name = last->event.name;
  const double begin = monotonic_s();
  courier_->await(last->number);
  const double stood = monotonic_s() - begin;
  double waited = 0;
  for (auto end = last.base(); under_way_.begin() != end; under_way_.pop_front()) {
    waited += under_way_.front().event.waited;
    add_event(under_way_.front().event);
  }
  if (profiling_) {
    ProfileRow& row = profile_[std::string(name)];
    row.seconds += stood;
    row.waited += std::min(stood, waited);
  }
  due_ = never;
  for (const UnderWay& one : under_way_) due_ = std::min(due_, one.awaited);
}

/// A run that throws leaves nothing behind that goes on in its memory.
void Executor::abandon() noexcept {
  if (courier_) courier_->forget();
  under_way_.clear();
  due_ = never;
}

}  // namespace plait

// What the executor does together with other ranks. Communicators know flat arrays in the order of ranks; blocks of a
// dimension that is not the first are put together, and taken apart, here.
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

void Executor::collective(const Instruction& instruction) {
  using Kind = CollectiveCall::Kind;
  const CollectiveCall& call = instruction.call;
  const TensorView &in = in_[0], &out = out_[0];
  if (call.kind == Kind::shard) return take_block(in, call.dim, call.part * out.shape[call.dim], out);

  Communicator& group = *groups_[static_cast<size_t>(call.group)];
  switch (call.kind) {
    case Kind::all_reduce:
      if (in.bytes()) std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
      return group.all_reduce(flat(out), call.reduction);
    case Kind::all_gather: {
      if (leads(in.shape, call.dim)) return group.all_gather(flat(in), flat(out));
      std::byte* parts = scratch(out.bytes()).data();
      group.all_gather(flat(in), flat(parts, in.dtype, out.elements()));
      for (int k = 0; k < call.parts; ++k) put_block(out, call.dim, k * in.shape[call.dim], nth(in, parts, k));
      return;
    }
    case Kind::reduce_scatter: {
      if (leads(in.shape, call.dim)) return group.reduce_scatter(flat(in), flat(out), call.reduction);
      std::byte* parts = scratch(in.bytes()).data();
      for (int k = 0; k < call.parts; ++k) take_block(in, call.dim, k * out.shape[call.dim], nth(out, parts, k));
      return group.reduce_scatter(flat(parts, in.dtype, in.elements()), flat(out), call.reduction);
    }
    case Kind::all_to_all: {
      TensorView part{nullptr, in.dtype, in.shape};
      part.shape[call.to_dim] = out.shape[call.to_dim];
      std::byte *to = scratch(2 * in.bytes()).data(), *from = to + in.bytes();
      for (int k = 0; k < call.parts; ++k) take_block(in, call.to_dim, k * part.shape[call.to_dim], nth(part, to, k));
      group.all_to_all(flat(to, in.dtype, in.elements()), flat(from, in.dtype, in.elements()));
      for (int k = 0; k < call.parts; ++k) put_block(out, call.dim, k * in.shape[call.dim], nth(part, from, k));
      return;
    }
    case Kind::shard: return;
  }
}

}  // namespace plait

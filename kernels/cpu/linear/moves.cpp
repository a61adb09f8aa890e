// Ops that move rows: plait.KvWrite, plait.Embedding, plait.GatherRows.
#include <cstring>

#include "kernels/cpu/linear/blocked_tile.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/rows/indices.h"
#include "kernels/cpu/linear/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

bool is_storage(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

/// The first index outside [0, limit) as a status of operand 1.
KernelStatus check_indices(const TensorView& indices, int64_t limit) {
  for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
    int64_t index = read_index(indices, i);
    if (index < 0 || index >= limit) return {KernelCode::index_out_of_range, 1, index};
  }
  return {};
}

bool accepts_kv_write(const NodeInfo& node) {
  DType pages = node.inputs[0].dtype;
  return (pages == DType::f32 || pages == DType::bf16) && node.inputs[1].dtype == pages &&
         node.inputs[2].dtype == DType::f32 && node.inputs[3].dtype == DType::f32 &&
         node.inputs[4].dtype == DType::i32;
}

/// One token's key, transposed into the page: `to` is its column, c elements apart.
template <class T>
void scatter_key(const T* key, int64_t d, int64_t c, std::byte* to) {
  for (int64_t i = 0; i < d; ++i) memcpy(to + i * c * static_cast<int64_t>(sizeof(T)), key + i, sizeof(T));
}

int64_t kv_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int threads) {
  return threads * align(inputs[0].shape[2] * 2);  // a key in bf16
}

/// k_pages [p, g, d, c], v_pages [p, g, c, e], k [b, t, g, d], v [b, t, g, e], slots [b, t] -> the pages.
template <Isa isa>
KernelStatus run_kv_write(const KernelCall& call) {
  const TensorView &keys = call.outputs[0], &values = call.outputs[1], &slots = call.inputs[4];
  const int64_t g = keys.shape[1], d = keys.shape[2], c = keys.shape[3], e = values.shape[3];
  const int64_t places = keys.shape[0] * c, tokens = slots.elements(), size = dtype_bits(keys.dtype) / 8;
  for (int64_t i = 0; i < tokens; ++i) {
    int64_t slot = read_index(slots, i);
    if (slot < -1 || slot >= places) return {KernelCode::index_out_of_range, 4, slot};
  }
  for (size_t i = 0; i < 2; ++i)  // pages normally stay in place
    if (call.outputs[i].data != call.inputs[i].data)
      memcpy(call.outputs[i].data, call.inputs[i].data, static_cast<size_t>(call.inputs[i].bytes()));
  const int64_t stride = static_cast<int64_t>(call.scratch.size()) / call.pool.size() / 64 * 64;
  share_ranges(call.pool, tokens, 1, g * (d * 4 + e), [&](int64_t begin, int64_t end, int worker) {
    for (int64_t token = begin; token < end; ++token) {
      int64_t slot = read_index(slots, token);
      if (slot < 0) continue;
      for (int64_t head = 0; head < g; ++head) {
        const float* key = call.inputs[2].as<float>() + (token * g + head) * d;
        const float* value = call.inputs[3].as<float>() + (token * g + head) * e;
        const int64_t place = slot / c * g + head, offset = slot % c;
        std::byte* key_to = keys.data + (place * d * c + offset) * size;
        std::byte* value_to = values.data + (place * c + offset) * e * size;
        if (keys.dtype == DType::bf16) {
          auto* row = reinterpret_cast<uint8_t*>(call.scratch.data() + worker * stride);
          elementwise_loops(isa).narrow_bf16(key, row, d);
          scatter_key(reinterpret_cast<const uint16_t*>(row), d, c, key_to);
          elementwise_loops(isa).narrow_bf16(value, reinterpret_cast<uint8_t*>(value_to), e);
        } else {
          scatter_key(key, d, c, key_to);
          memcpy(value_to, value, static_cast<size_t>(e) * sizeof(float));
        }
      }
    }
  });
  return {};
}

bool is_present(const NodeInfo& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i].dtype != DType::none;
}

bool accepts_embedding(const NodeInfo& node) {
  if (!is_index(node.inputs[1].dtype) || node.outputs[0].dtype != DType::f32) return false;
  const DType table = node.inputs[0].dtype;
  if (node.inputs[0].rank == 2) return is_storage(table);
  if (node.inputs[0].rank != 3 || !is_present(node, 2) || !is_storage(node.inputs[2].dtype)) return false;
  const DType zeros = is_present(node, 3) ? node.inputs[3].dtype : DType::u8;
  return (dtype_bits(table) < 8 || table == DType::u8 || table == DType::i8) &&
         (is_storage(zeros) || zeros == DType::u8 || zeros == DType::i8);
}

struct EmbeddingState : KernelState {
  float zero = 0;
  ShardedAxis vocabulary;
};

std::shared_ptr<const KernelState> prepare_embedding(const NodeInfo& node) {
  auto state = std::make_shared<EmbeddingState>();
  state->zero = static_cast<float>(node.attributes.integer("zero", 0));
  state->vocabulary = ShardedAxis::of(node.attributes);
  return state;
}

/// The table, if it is quantised.
BlockedWeight blocked_table(const KernelState* state, std::span<const TensorView> inputs) {
  const Shape& shape = inputs[0].shape;
  BlockedWeight out{inputs[0].as<uint8_t>(), inputs[0].dtype, shape[0], shape[1], shape[2],
                    inputs[2].as<uint8_t>(), inputs[2].dtype};
  out.zero = static_cast<const EmbeddingState*>(state)->zero;
  if (inputs.size() > 3 && inputs[3].present()) out.zeros = inputs[3].as<uint8_t>(), out.zero_dtype = inputs[3].dtype;
  return out;
}

int64_t embedding_floats(const BlockedWeight& w) { return (w.padded() + dot_scratch(w.blocks) + 15) / 16 * 16; }

int64_t embedding_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                          int threads) {
  if (inputs[0].shape.rank() != 3) return 0;
  return threads * 4 * embedding_floats(blocked_table(state, inputs));
}

/// table [v, c, l] with scales and zero points, ids [...] -> [..., h], h <= c l.
template <Isa isa>
KernelStatus run_blocked_embedding(const KernelCall& call) {
  const TensorView& ids = call.inputs[1];
  const BlockedWeight rows = blocked_table(call.state, call.inputs);
  const ShardedAxis vocabulary = static_cast<const EmbeddingState*>(call.state)->vocabulary;
  const int64_t h = call.outputs[0].shape.back(1), floats = embedding_floats(rows);
  if (h > rows.blocks * rows.length || call.inputs[2].elements() != rows.n * rows.blocks)
    return {KernelCode::bad_value, 2, call.inputs[2].elements()};
  if (rows.zeros && call.inputs[3].elements() != rows.n * rows.blocks)
    return {KernelCode::bad_value, 3, call.inputs[3].elements()};
  share_ranges(call.pool, ids.elements(), 1, 2 * h, [&](int64_t begin, int64_t end, int worker) {
    float* row = reinterpret_cast<float*>(call.scratch.data()) + worker * floats;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = vocabulary.place(read_index(ids, i), rows.n);
      float* to = call.outputs[0].as<float>() + i * h;
      if (place < 0) {
        std::fill_n(to, h, 0.0f);
        continue;
      }
      blocked_tiles(isa).unpack(rows, place, 1, row, row + rows.padded());
      blocked_tiles(isa).restore(row, h, rows, to);
    }
  });
  return {};
}

/// table [v, h], ids [...] -> [..., h] in f32. A row of another rank is 0.
template <Isa isa>
KernelStatus run_embedding(const KernelCall& call) {
  const TensorView &rows = call.inputs[0], &ids = call.inputs[1];
  const ShardedAxis vocabulary = static_cast<const EmbeddingState*>(call.state)->vocabulary;
  const int64_t v = rows.shape[0];
  if (KernelStatus status = check_indices(ids, std::max(v, vocabulary.whole)); status.code != KernelCode::ok)
    return status;
  if (rows.shape.rank() == 3) return run_blocked_embedding<isa>(call);
  const int64_t h = rows.shape[1], bytes = h * dtype_bits(rows.dtype) / 8;
  const ElementwiseLoops& loops = elementwise_loops(isa);
  share_ranges(call.pool, ids.elements(), 1, h, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = vocabulary.place(read_index(ids, i), v);
      const uint8_t* from = rows.as<uint8_t>() + place * bytes;
      float* to = call.outputs[0].as<float>() + i * h;
      if (place < 0) std::fill_n(to, h, 0.0f);
      else if (rows.dtype == DType::bf16) loops.widen_bf16(from, to, h);
      else if (rows.dtype == DType::f16) loops.widen_f16(from, to, h);
      else memcpy(to, from, static_cast<size_t>(bytes));
    }
  });
  return {};
}

bool accepts_gather(const NodeInfo& node) {
  int bits = dtype_bits(node.inputs[0].dtype);
  return bits >= 8 && is_index(node.inputs[1].dtype);
}

/// x [b, s, ...], rows [b, n] -> [b, n, ...].
KernelStatus run_gather(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &rows = call.inputs[1];
  const int64_t s = x.shape[1], n = rows.shape[1], size = dtype_bits(x.dtype) / 8;
  if (KernelStatus status = check_indices(rows, s); status.code != KernelCode::ok) return status;
  const int64_t bytes = x.shape.elements(2, x.shape.rank()) * size;
  share_ranges(call.pool, rows.elements(), 1, bytes / 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      memcpy(call.outputs[0].data + i * bytes, x.data + (i / n * s + read_index(rows, i)) * bytes,
             static_cast<size_t>(bytes));
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.KvWrite",
              .dtypes = "f32|bf16 x f32",
              .accepts = accepts_kv_write,
              .scratch_bytes = kv_scratch,
              .run = run_kv_write<isa>,
              .in_place = 0});
  add_kernel(table, isa,
             {.op = "plait.Embedding",
              .dtypes = "f32|bf16|f16|2 to 8 bits",
              .accepts = accepts_embedding,
              .prepare = prepare_embedding,
              .scratch_bytes = embedding_scratch,
              .run = run_embedding<isa>});
  add_kernel(table, isa, {.op = "plait.GatherRows", .dtypes = "any", .accepts = accepts_gather, .run = run_gather});
}

}  // namespace

void add_moves(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu

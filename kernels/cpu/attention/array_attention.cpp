// Attention of ONNX in f32, on whole arrays: keys and values are packed once for each of their heads by each worker, and a block of
// queries is multiplied by all keys that it sees. Each row has the order of operations of its own keys only.
#include <utility>

#include "kernels/cpu/attention/packed_attention.h"
#include "kernels/cpu/attention/register.h"

namespace plait::cpu {
namespace {

enum Slot : size_t { query_in, key_in, value_in, mask_in, past_key_in, past_value_in, lengths_in };

struct ArrayAttentionState : KernelState {
  explicit ArrayAttentionState(const Attributes& a)
      : query_heads(a.integer("q_num_heads", 0)),
        key_heads(a.integer("kv_num_heads", 0)),
        left(clamped(a.integer("left_window_size", -1))),
        right(clamped(a.integer("right_window_size", -1))),
        kept(a.integer("qk_matmul_output_mode", 0)),
        causal(a.integer("is_causal", 0) != 0),
        scale(static_cast<float>(a.real("scale", 0))),
        softcap(static_cast<float>(std::max(a.real("softcap", 0), 0.0))) {}
  static int64_t clamped(int64_t size) { return std::min(size, int64_t{1} << 40); }

  int64_t query_heads, key_heads;  ///< of 3-D operands
  int64_t left, right;             ///< how many keys before and after its own a query sees; -1: all
  int64_t kept;  ///< what output 3 holds: 0 scores, 1 after the soft cap, 2 after the mask, 3 probabilities
  bool causal;
  float scale, softcap;  ///< 0: 1 / sqrt(d), none
};

/// Heads inside an array [b, h, s, d] or [b, s, h d], in floats.
struct HeadArray {
  HeadArray(const TensorView& x, int64_t heads) : data(x.as<float>()), b(x.shape[0]) {
    if (x.shape.rank() == 4) {
      h = x.shape[1], s = x.shape[2], d = x.shape[3];
      batch = h * s * d, head = s * d, token = d;
    } else {
      h = std::max<int64_t>(heads, 1), s = x.shape[1], d = x.shape[2] / h;
      batch = s * x.shape[2], head = d, token = x.shape[2];
    }
  }
  float* at(int64_t row, int64_t which, int64_t place) const {
    return data + row * batch + which * head + place * token;
  }

  float* data;
  int64_t b, h = 0, s = 0, d = 0, batch = 0, head = 0, token = 0;
};

/// Strides of a mask [b, h, s, n] that broadcasts, in elements.
struct MaskArray {
  explicit MaskArray(const TensorView& mask) : view(mask) {
    if (!mask.present()) return;
    const int rank = mask.shape.rank();
    width = rank ? mask.shape[rank - 1] : 1;
    int64_t step = width;
    for (int axis = 2; axis >= 0; --axis) {
      const int own = axis + rank - 4;
      const int64_t size = own < 0 ? 1 : mask.shape[own];
      strides[axis] = size == 1 ? 0 : step;
      step *= size;
    }
  }
  int64_t row(int64_t b, int64_t h, int64_t i) const { return b * strides[0] + h * strides[1] + i * strides[2]; }

  TensorView view;
  int64_t width = 0;  ///< later keys are masked
  int64_t strides[3] = {0, 0, 0};
};

TensorView operand(std::span<const TensorView> all, size_t i) { return i < all.size() ? all[i] : TensorView{}; }

struct ArraySizes {
  ArraySizes(const KernelState* kept, std::span<const TensorView> inputs, std::span<const TensorView> outputs)
      : state(*static_cast<const ArrayAttentionState*>(kept)),
        q(inputs[query_in], state.query_heads),
        k(inputs[key_in], state.key_heads),
        v(inputs[value_in], state.key_heads),
        past(operand(inputs, past_key_in).present() ? inputs[past_key_in].shape[2] : 0),
        n(past + k.s),
        joins(operand(inputs, past_key_in).present()),
        keeps(operand(outputs, 3).present()) {}

  /// Arrays of all keys and of all values, where there is a past and no output for them.
  int64_t joined_bytes(std::span<const TensorView> outputs, size_t output, int64_t size) const {
    return joins && !operand(outputs, output).present() ? align(4 * k.b * k.h * n * size) : 0;
  }
  int64_t scratch_bytes(std::span<const TensorView> outputs, const GemmTiles& tiles, int threads) const;

  const ArrayAttentionState& state;
  HeadArray q, k, v;
  int64_t past, n;
  bool joins, keeps;
};

/// A worker's packed keys and values of one head, and a block of queries.
struct ArrayWorkspace {
  ArrayWorkspace(const ArraySizes& s, const GemmTiles& tiles)
      : rows(attention_rows(tiles)),
        blocks((s.n + attention_keys - 1) / attention_keys),
        stride(blocks * attention_keys + 16),
        keys(align(tiles.right_bytes(attention_keys, s.k.d))),
        values(align(tiles.right_bytes(s.v.d, attention_keys))),
        query(align(tiles.left_bytes(rows, s.q.d))),
        part(align(tiles.left_bytes(rows, attention_keys))),
        scores(align(4 * rows * stride)) {}
  int64_t bytes() const { return align(sizeof(int64_t)) + (keys + values) * blocks + query + part + scores; }
  int64_t rows, blocks, stride, keys, values, query, part, scores;
};

int64_t ArraySizes::scratch_bytes(std::span<const TensorView> outputs, const GemmTiles& tiles, int threads) const {
  return joined_bytes(outputs, 1, k.d) + joined_bytes(outputs, 2, v.d) +
         threads * ArrayWorkspace(*this, tiles).bytes();
}

/// past [b, g, p, d]? and the fresh heads as [b, g, n, d], if there is a past or an output for them.
HeadArray joined(const TensorView& past, const HeadArray& fresh, int64_t n, const TensorView& present,
                 std::byte* scratch) {
  if (!past.present() && !present.present()) return fresh;
  HeadArray out = fresh;
  out.data = present.present() ? present.as<float>() : reinterpret_cast<float*>(scratch);
  out.s = n, out.batch = fresh.h * n * fresh.d, out.head = n * fresh.d, out.token = fresh.d;
  const int64_t p = n - fresh.s, size = fresh.d;
  for (int64_t i = 0; i < fresh.b * fresh.h; ++i) {
    float* to = out.data + i * n * size;
    if (p) std::memcpy(to, past.as<float>() + i * p * size, static_cast<size_t>(4 * p * size));
    for (int64_t t = 0; t < fresh.s; ++t)
      std::memcpy(to + (p + t) * size, fresh.at(i / fresh.h, i % fresh.h, t), static_cast<size_t>(4 * size));
  }
  return out;
}

int64_t read_length(const TensorView& lengths, int64_t b) {
  return lengths.dtype == DType::i64 ? lengths.as<int64_t>()[b] : lengths.as<int32_t>()[b];
}

template <Isa isa>
class ArrayAttention {
 public:
  explicit ArrayAttention(const KernelCall& call)
      : call_(call),
        sizes_(call.state, call.inputs, call.outputs),
        space_(sizes_, tiles_),
        y_(call.outputs[0], sizes_.state.query_heads),
        keys_(sizes_.k),
        values_(sizes_.v),
        mask_(operand(call.inputs, mask_in)),
        lengths_(operand(call.inputs, lengths_in)),
        scale_(sizes_.state.scale != 0 ? sizes_.state.scale : 1 / std::sqrt(static_cast<float>(sizes_.q.d))) {}

  KernelStatus run() {
    const HeadArray &q = sizes_.q, &k = sizes_.k;
    if (k.h == 0 || q.h % k.h) return {KernelCode::bad_value, 1, k.h};
    std::byte* scratch = call_.scratch.data();
    const auto take = [&](int64_t bytes) { return std::exchange(scratch, scratch + bytes); };
    keys_ = joined(operand(call_.inputs, past_key_in), k, sizes_.n, operand(call_.outputs, 1),
                   take(sizes_.joined_bytes(call_.outputs, 1, k.d)));
    values_ = joined(operand(call_.inputs, past_value_in), sizes_.v, sizes_.n, operand(call_.outputs, 2),
                     take(sizes_.joined_bytes(call_.outputs, 2, sizes_.v.d)));
    workers_ = scratch;
    for (int i = 0; i < call_.pool.size(); ++i) *at(i).held = -1;
    const int64_t blocks = (q.s + space_.rows - 1) / space_.rows;
    share(call_.pool, q.b * q.h * blocks, q.b * q.h * q.s * sizes_.n * (q.d + y_.d), [&](int64_t item, int worker) {
      block(at(worker), item / blocks / q.h, item / blocks % q.h, item % blocks * space_.rows);
    });
    return {};
  }

 private:
  struct Worker {
    int64_t* held;  ///< whose keys and values are packed
    std::byte *keys, *values, *query, *part;
    float* scores;
  };
  Worker at(int index) const {
    std::byte* memory = workers_ + index * space_.bytes();
    const auto take = [&](int64_t bytes) { return std::exchange(memory, memory + bytes); };
    auto* held = reinterpret_cast<int64_t*>(take(align(sizeof(int64_t))));
    std::byte *keys = take(space_.keys * space_.blocks), *values = take(space_.values * space_.blocks);
    std::byte *query = take(space_.query), *part = take(space_.part);
    return {held, keys, values, query, part, reinterpret_cast<float*>(memory)};
  }

  struct Seen {
    int64_t first, last;
  };
  /// Keys [first, last) that query i sees: by the causal rule, the window and the length.
  Seen seen(int64_t b, int64_t i) const {
    const ArrayAttentionState& state = sizes_.state;
    int64_t place = i + sizes_.past, last = sizes_.n;
    if (lengths_.present()) {
      const int64_t length = std::clamp<int64_t>(read_length(lengths_, b), -1, int64_t{1} << 40);
      last = std::min(last, length);
      if (!sizes_.joins) place = i + length - sizes_.q.s;
    }
    if (state.causal) last = std::min(last, place + 1);
    if (state.right >= 0) last = std::min(last, place + state.right + 1);
    const int64_t first = state.left >= 0 ? std::max<int64_t>(0, place - state.left) : 0;
    return first < last ? Seen{first, last} : Seen{0, 0};
  }

  void pack(const Worker& worker, int64_t b, int64_t g) const {
    if (std::exchange(*worker.held, b * sizes_.k.h + g) == b * sizes_.k.h + g) return;
    for (int64_t j = 0; j < sizes_.n; j += attention_keys) {
      const int64_t count = std::min(attention_keys, sizes_.n - j), index = j / attention_keys;
      tiles_.pack_right(HeadWorker<isa>::right(keys_.at(b, g, j), keys_.token, true), count, keys_.d,
                        worker.keys + index * space_.keys);
      tiles_.pack_right(HeadWorker<isa>::right(values_.at(b, g, j), values_.token, false), values_.d, count,
                        worker.values + index * space_.values);
    }
  }
  void pack_left(const GemmLeft& a, int64_t m, int64_t k, std::byte* to) const {
    for (int64_t i = 0; i < m; i += tiles_.rows)
      tiles_.pack_left(a.from(i, 0), std::min(tiles_.rows, m - i), k, to + i / tiles_.rows * tiles_.left_bytes(1, k));
  }

  void keep(int64_t mode, int64_t at, const float* row) const {
    if (sizes_.keeps && mode == sizes_.state.kept)
      std::memcpy(call_.outputs[3].as<float>() + at * sizes_.n, row, static_cast<size_t>(4 * sizes_.n));
  }

  /// Converts products of query i with keys [low, low + count) to probabilities.
  void weigh(float* row, int64_t b, int64_t h, int64_t i, int64_t low, int64_t count) const {
    const ArrayAttentionState& state = sizes_.state;
    const LossLoops& loops = loss_loops(loops_of(isa));
    const int64_t at = (b * sizes_.q.h + h) * sizes_.q.s + i;
    const bool apart = sizes_.keeps && state.kept == 0;
    loops.to_logits(row, nullptr, count, {scale_, apart ? 0 : state.softcap});
    keep(0, at, row);
    if (apart && state.softcap > 0) loops.to_logits(row, nullptr, count, {1, state.softcap});
    keep(1, at, row);
    const Seen keys = seen(b, i);
    if (mask_.view.present()) add_mask(row, mask_.row(b, h, i), low, count);
    std::fill(row, row + std::clamp<int64_t>(keys.first - low, 0, count), -HUGE_VALF);
    std::fill(row + std::clamp<int64_t>(keys.last - low, 0, count), row + count, -HUGE_VALF);
    keep(2, at, row);
    if (std::all_of(row, row + count, [](float x) { return x == -HUGE_VALF; })) {
      std::fill_n(row, count, 0.0f);
    } else {
      float most = -HUGE_VALF, sum = 0;
      loops.weigh(row, count, {}, most, sum);
      const float part = 1 / sum;
      elementwise_loops(loops_of(isa)).binary[static_cast<int>(Binary::mul)](row, 1, &part, 0, row, count);
    }
    keep(3, at, row);
  }
  void add_mask(float* row, int64_t from, int64_t low, int64_t count) const {
    const int64_t own = std::clamp<int64_t>(mask_.width - low, 0, count);
    if (mask_.view.dtype == DType::f32) {
      const float* add = mask_.view.as<float>() + from + low;
      elementwise_loops(loops_of(isa)).binary[static_cast<int>(Binary::add)](row, 1, add, 1, row, own);
    } else {
      const uint8_t* shown = mask_.view.as<uint8_t>() + from + low;
      for (int64_t j = 0; j < own; ++j) row[j] += shown[j] ? 0 : -HUGE_VALF;
    }
    for (int64_t j = own; j < count; ++j) row[j] += -HUGE_VALF;
  }

  /// y = probabilities times values. A masked key's value may be anything, even NaN: a row that is not finite is summed again
  /// without keys of probability 0.
  void sum_values(const Worker& worker, int64_t b, int64_t g, int64_t low, int64_t count, int64_t rows,
                  float* y) const {
    for (int64_t j = 0; j < count; j += attention_keys) {
      const int64_t some = std::min(attention_keys, count - j);
      pack_left({worker.scores + j, space_.stride, false}, rows, some, worker.part);
      tiles_.block({worker.part, worker.values + (low + j) / attention_keys * space_.values, rows, y_.d, some, y,
                    y_.token, j > 0});
    }
    for (int64_t i = 0; i < rows; ++i) {
      float* row = y + i * y_.token;
      if (count > 0 && std::all_of(row, row + y_.d, [](float x) { return std::isfinite(x); })) continue;
      std::fill_n(row, y_.d, 0.0f);
      for (int64_t j = 0; j < count; ++j) {
        const float part = worker.scores[i * space_.stride + j];
        for (int64_t e = 0; part != 0 && e < y_.d; ++e) row[e] += part * values_.at(b, g, low + j)[e];
      }
    }
  }

  /// Queries [begin, begin + rows) of a head: whole blocks of keys from the first that one of them sees to the last.
  void block(const Worker& worker, int64_t b, int64_t h, int64_t begin) const {
    const HeadArray& q = sizes_.q;
    const int64_t g = h / (q.h / sizes_.k.h), rows = std::min(space_.rows, q.s - begin);
    int64_t low = sizes_.n, high = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const Seen keys = seen(b, begin + i);
      if (keys.first < keys.last) low = std::min(low, keys.first), high = std::max(high, keys.last);
    }
    if (sizes_.keeps) low = 0, high = sizes_.n;
    low = low / attention_keys * attention_keys;
    const int64_t count =
        std::max<int64_t>(0, std::min((high + attention_keys - 1) / attention_keys * attention_keys, sizes_.n) - low);
    pack(worker, b, g);
    pack_left({q.at(b, h, begin), q.token, false}, rows, q.d, worker.query);
    for (int64_t j = 0; j < count; j += attention_keys)
      tiles_.block({worker.query, worker.keys + (low + j) / attention_keys * space_.keys, rows,
                    std::min(attention_keys, count - j), q.d, worker.scores + j, space_.stride, false});
    for (int64_t i = 0; q.d == 0 && i < rows; ++i)
      std::fill_n(worker.scores + i * space_.stride, count, 0.0f);  // no product writes them
    for (int64_t i = 0; i < rows; ++i) weigh(worker.scores + i * space_.stride, b, h, begin + i, low, count);
    sum_values(worker, b, g, low, count, rows, y_.at(b, h, begin));
  }

  const KernelCall& call_;
  const GemmTiles& tiles_ = gemm_tiles(isa);
  const ArraySizes sizes_;
  const ArrayWorkspace space_;
  const HeadArray y_;
  HeadArray keys_, values_;
  const MaskArray mask_;
  const TensorView lengths_;
  const float scale_;
  std::byte* workers_ = nullptr;
};

bool accepts_arrays(const NodeInfo& node) {
  for (size_t i : {query_in, key_in, value_in, past_key_in, past_value_in})
    if (!is_f32_or_absent(node, i)) return false;
  for (const OperandInfo& output : node.outputs)
    if (output.dtype != DType::none && output.dtype != DType::f32) return false;
  const bool lengths = node.inputs.size() <= lengths_in || is(node, lengths_in, DType::none) ||
                       is(node, lengths_in, DType::i64) || is(node, lengths_in, DType::i32);
  const Attributes& a = node.attributes;
  const bool told =
      node.inputs[query_in].rank == 4 || (a.integer("q_num_heads", 0) > 0 && a.integer("kv_num_heads", 0) > 0);
  const int64_t kept = a.integer("qk_matmul_output_mode", 0);
  return lengths && told && kept >= 0 && kept <= 3 &&
         (is_f32_or_absent(node, mask_in) || is(node, mask_in, DType::boolean));
}

std::shared_ptr<const KernelState> prepare_arrays(const NodeInfo& node) {
  return std::make_shared<ArrayAttentionState>(node.attributes);
}

template <Isa isa>
int64_t array_scratch(const KernelState* state, std::span<const TensorView> inputs,
                      std::span<const TensorView> outputs, int threads) {
  return ArraySizes(state, inputs, outputs).scratch_bytes(outputs, gemm_tiles(isa), threads);
}

template <Isa isa>
KernelStatus run_arrays(const KernelCall& call) {
  return ArrayAttention<isa>(call).run();
}

template <Isa isa>
void add_arrays(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "Attention",
              .dtypes = "f32",
              .accepts = accepts_arrays,
              .prepare = prepare_arrays,
              .scratch_bytes = array_scratch<isa>,
              .run = run_arrays<isa>});
}

}  // namespace

void add_array_attention(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_arrays<Isa::avx2>(table);
  if (isa == Isa::avx512) add_arrays<Isa::avx512>(table);
}

}  // namespace plait::cpu

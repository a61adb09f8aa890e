// plait.PagedAttention: tiles of tokens, threads, and the split of long contexts. The arithmetic is in
// attention_tile.cpp.
//
// Keys are always gathered in spans of about 512 positions, aligned at absolute positions, each with a softmax of its
// own, and spans are merged in ascending order. So one query of a long context can be split over threads, with the
// same bits as any other split ("flash decoding", Dao et al. 2023, with a fixed split).
#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/attention/register.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

constexpr int64_t span_keys = 512;
/// Query rows in a tile: 64 rows of 256 floats with their sums are 128 KB, a share of L2; K and V pages (32 KB each
/// for d = e = 256 and 32 keys in f32) are read once for all of them.
constexpr int64_t tile_rows = 64;
/// Only calls of at most this many rows are split along keys, since their partial sums are kept.
constexpr int64_t most_split_rows = 64;

struct AttentionState : KernelState {
  float scale = 1, softcap = 0;
  int64_t window = 0;
};

int32_t read_i32(const TensorView& tensor, int64_t i) {
  int32_t out;
  memcpy(&out, tensor.data + i * 4, sizeof out);
  return out;
}

/// Consecutive tokens of one segment.
struct Tile {
  int32_t begin, count, segment;
  int32_t first_page, last_page;  ///< seen by any of them: [first, last)
};

struct Sizes {
  int64_t tokens, heads, kv_heads, d, e, c, pages, segments, table, max_spans, span_pages;

  Sizes(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& page_table)
      : tokens(q.shape[0] * q.shape[1]), heads(q.shape[2]), kv_heads(k.shape[1]), d(q.shape[3]), e(v.shape[3]),
        c(k.shape[3]), pages(k.shape[0]), segments(page_table.shape[0]), table(page_table.shape[1]),
        max_spans(0), span_pages(std::max<int64_t>(1, span_keys / std::max<int64_t>(c, 1))) {
    max_spans = (table + span_pages - 1) / span_pages;
  }
  int64_t shared_heads() const { return heads / std::max<int64_t>(kv_heads, 1); }
  int64_t tile_tokens() const { return std::max<int64_t>(1, tile_rows / std::max<int64_t>(shared_heads(), 1)); }
  int64_t most_rows() const { return tile_tokens() * shared_heads(); }
};

/// Carves scratch front to back; the same code counts and assigns.
struct Scratch {
  std::byte* data;
  int64_t used = 0;
  template <class T>
  T* take(int64_t count) {
    T* out = reinterpret_cast<T*>(data + used);
    used += align(count * static_cast<int64_t>(sizeof(T)));
    return out;
  }
};

AttentionSums take_sums(Scratch& scratch, int64_t rows, int64_t e) {
  return {scratch.take<float>(rows), scratch.take<float>(rows), scratch.take<float>(rows * e)};
}

struct Worker {
  float *q, *scores, *sinks;
  uint32_t* pairs;
  int32_t* positions;
  AttentionSums span, sums;

  Worker(Scratch& scratch, const Sizes& s)
      : q(scratch.take<float>(s.most_rows() * s.d)), scores(scratch.take<float>(s.most_rows() * score_stride(s.c))),
        sinks(scratch.take<float>(s.most_rows())),
        pairs(scratch.take<uint32_t>(s.most_rows() * pair_stride(s.d))), positions(scratch.take<int32_t>(s.tile_tokens())),
        span(take_sums(scratch, s.most_rows(), s.e)), sums(take_sums(scratch, s.most_rows(), s.e)) {}
};

/// Shared: tiles, and partial sums of a split call, [rows, spans].
struct Common {
  Tile* tiles;
  AttentionSums parts;

  Common(Scratch& scratch, const Sizes& s)
      : tiles(scratch.take<Tile>(s.tokens)),
        parts(take_sums(scratch, std::min(s.tokens * s.heads, most_split_rows) * s.max_spans, s.e)) {}
};

int64_t scratch_bytes(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  Sizes sizes(inputs[0], inputs[1], inputs[2], inputs[5]);
  Scratch scratch{nullptr};
  Common common(scratch, sizes);
  for (int i = 0; i < threads; ++i) Worker worker(scratch, sizes);
  return scratch.used;
}

class Attention {
 public:
  Attention(const KernelCall& call, const AttentionTiles& kernel)
      : call_(call), state_(*static_cast<const AttentionState*>(call.state)), kernel_(kernel),
        sizes_(call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[5]), scratch_{call.scratch.data()},
        common_(scratch_, sizes_), worker_base_(scratch_.used) {
    Worker probe(scratch_, sizes_);
    worker_bytes_ = scratch_.used - worker_base_;
  }

  KernelStatus run() {
    if (KernelStatus status = make_tiles(); status.code != KernelCode::ok) return status;
    const int64_t groups = sizes_.kv_heads, items = tiles_ * groups;
    bool split = items < 2 * call_.pool.size() && call_.pool.size() > 1 && sizes_.max_spans > 1 &&
                 sizes_.tokens * sizes_.heads <= most_split_rows && work_ >= 4 * least_shared_work;
    if (!split) {
      // The last tiles see the most keys: they start first.
      share(call_.pool, items, work_, [&](int64_t item, int worker) {
        whole(common_.tiles[tiles_ - 1 - item / groups], item % groups, at(worker));
      });
      return {};
    }
    share(call_.pool, items * sizes_.max_spans, work_, [&](int64_t item, int worker) {
      int64_t span = item % sizes_.max_spans, unit = item / sizes_.max_spans;
      part(common_.tiles[unit / groups], unit % groups, span, at(worker));
    });
    Worker worker = at(0);
    for (int64_t item = 0; item < items; ++item) join(common_.tiles[item / groups], item % groups, worker);
    return {};
  }

 private:
  Worker at(int worker) const {
    Scratch scratch{call_.scratch.data(), worker_base_ + worker * worker_bytes_};
    return Worker(scratch, sizes_);
  }

  KernelStatus make_tiles() {
    const TensorView &positions = call_.inputs[3], &segments = call_.inputs[4];
    for (int64_t i = 0; i < sizes_.tokens;) {
      int32_t segment = read_i32(segments, i);
      if (segment < 0) {
        clear(i++);
        continue;
      }
      if (segment >= sizes_.segments) return {KernelCode::index_out_of_range, 4, segment};
      Tile tile{static_cast<int32_t>(i), 0, segment, INT32_MAX, 0};
      for (; i < sizes_.tokens && tile.count < sizes_.tile_tokens() && read_i32(segments, i) == segment; ++i) {
        int64_t position = read_i32(positions, i);
        if (position < 0 || position / sizes_.c >= sizes_.table) return {KernelCode::index_out_of_range, 3, position};
        int64_t first = state_.window > 0 ? std::max<int64_t>(0, position - state_.window + 1) / sizes_.c : 0;
        tile.first_page = std::min(tile.first_page, static_cast<int32_t>(first));
        tile.last_page = std::max(tile.last_page, static_cast<int32_t>(position / sizes_.c + 1));
        ++tile.count;
        for (int64_t page = first; page <= position / sizes_.c; ++page) {
          int32_t place = read_i32(call_.inputs[5], segment * sizes_.table + page);
          if (place < 0 || place >= sizes_.pages) return {KernelCode::index_out_of_range, 5, place};
        }
      }
      work_ +=
          int64_t{tile.count} * sizes_.heads * (tile.last_page - tile.first_page) * sizes_.c * (sizes_.d + sizes_.e);
      common_.tiles[tiles_++] = tile;
    }
    return {};
  }

  void clear(int64_t token) {
    memset(call_.outputs[0].as<float>() + token * sizes_.heads * sizes_.e, 0,
           static_cast<size_t>(sizes_.heads * sizes_.e) * sizeof(float));
  }

  AttentionSpan load(const Tile& tile, int64_t group, const Worker& worker) const {
    const Sizes& s = sizes_;
    const TensorView &k = call_.inputs[1], &v = call_.inputs[2];
    const int64_t r = s.shared_heads(), size = dtype_bits(k.dtype) / 8;
    for (int64_t i = 0; i < tile.count; ++i) {
      memcpy(worker.q + i * r * s.d, call_.inputs[0].as<float>() + ((tile.begin + i) * s.heads + group * r) * s.d,
             static_cast<size_t>(r * s.d) * sizeof(float));
      worker.positions[i] = read_i32(call_.inputs[3], tile.begin + i);
    }
    const bool sloped = call_.inputs.size() > 7 && call_.inputs[7].present();
    return {.q = worker.q, .tokens = tile.count, .heads = r, .d = s.d, .e = s.e, .positions = worker.positions,
            .k_pages = k.as<uint8_t>() + group * s.d * s.c * size,
            .v_pages = v.as<uint8_t>() + group * s.c * s.e * size,
            .k_stride = s.kv_heads * s.d * s.c * size, .v_stride = s.kv_heads * s.c * s.e * size, .c = s.c,
            .dtype = k.dtype, .page_table = call_.inputs[5].as<uint8_t>() + tile.segment * s.table * 4,
            .first_page = 0, .last_page = 0, .scale = state_.scale, .softcap = state_.softcap,
            .window = state_.window, .slopes = sloped ? call_.inputs[7].as<float>() + group * r : nullptr,
            .sums = worker.span, .scores = worker.scores, .pairs = worker.pairs};
  }

  /// Pages of span `index` that the tile sees; false if there are none.
  bool place_span(AttentionSpan& span, const Tile& tile, int64_t index) const {
    span.first_page = std::max<int64_t>(tile.first_page, index * sizes_.span_pages);
    span.last_page = std::min<int64_t>(tile.last_page, (index + 1) * sizes_.span_pages);
    return span.first_page < span.last_page;
  }

  void whole(const Tile& tile, int64_t group, const Worker& worker) const {
    AttentionSpan span = load(tile, group, worker);
    start(worker.sums, tile.count * span.heads);
    for (int64_t index = tile.first_page / sizes_.span_pages; place_span(span, tile, index); ++index) {
      kernel_.span(span);
      kernel_.merge(worker.sums, span.sums, tile.count * span.heads, sizes_.e);
    }
    finish(tile, group, worker);
  }

  void part(const Tile& tile, int64_t group, int64_t index, const Worker& worker) const {
    AttentionSpan span = load(tile, group, worker);
    if (!place_span(span, tile, index)) return;
    span.sums = kept(tile, group, index);
    kernel_.span(span);
  }

  void join(const Tile& tile, int64_t group, const Worker& worker) const {
    const int64_t rows = tile.count * sizes_.shared_heads();
    AttentionSpan span{};
    start(worker.sums, rows);
    for (int64_t index = tile.first_page / sizes_.span_pages; place_span(span, tile, index); ++index)
      kernel_.merge(worker.sums, kept(tile, group, index), rows, sizes_.e);
    finish(tile, group, worker);
  }

  /// The partial sums of a tile's span: rows of a (tile, group) are contiguous.
  AttentionSums kept(const Tile& tile, int64_t group, int64_t index) const {
    const int64_t r = sizes_.shared_heads(), rows = tile.count * r;
    const int64_t row = (tile.begin * sizes_.heads + group * rows) * sizes_.max_spans + index * rows;
    return {common_.parts.largest + row, common_.parts.total + row, common_.parts.values + row * sizes_.e};
  }

  void start(const AttentionSums& sums, int64_t rows) const {
    std::fill_n(sums.largest, rows, -HUGE_VALF);
    std::fill_n(sums.total, rows, 0.0f);
    std::fill_n(sums.values, rows * sizes_.e, 0.0f);
  }

  void finish(const Tile& tile, int64_t group, const Worker& worker) const {
    const int64_t r = sizes_.shared_heads(), e = sizes_.e;
    const bool sunk = call_.inputs.size() > 6 && call_.inputs[6].present();
    for (int64_t i = 0; i < tile.count; ++i) {
      AttentionSums sums{worker.sums.largest + i * r, worker.sums.total + i * r, worker.sums.values + i * r * e};
      kernel_.finish(sums, sunk ? call_.inputs[6].as<float>() + group * r : nullptr, r, e,
                     call_.outputs[0].as<float>() + ((tile.begin + i) * sizes_.heads + group * r) * e);
    }
  }

  const KernelCall& call_;
  const AttentionState& state_;
  const AttentionTiles& kernel_;
  Sizes sizes_;
  Scratch scratch_;
  Common common_;
  int64_t worker_base_, worker_bytes_ = 0, tiles_ = 0, work_ = 0;
};

template <Isa isa>
KernelStatus run(const KernelCall& call) {
  return Attention(call, attention_tiles(isa)).run();
}

template <Isa isa>
bool accepts(const NodeInfo& node) {
  auto dtype = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i].dtype : DType::none; };
  auto optional_f32 = [&](size_t i) { return dtype(i) == DType::none || dtype(i) == DType::f32; };
  const bool pages = dtype(1) == DType::bf16 || (dtype(1) == DType::f32 && !rounds_x(isa));
  return dtype(0) == DType::f32 && pages && dtype(2) == dtype(1) &&
         dtype(3) == DType::i32 && dtype(4) == DType::i32 && dtype(5) == DType::i32 && optional_f32(6) &&
         optional_f32(7);
}

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<AttentionState>();
  if (!node.attributes.has("scale")) throw Error(Code::bad_model, cat(node.op, ": attribute scale is missing"));
  state->scale = static_cast<float>(node.attributes.real("scale", 1));
  state->softcap = static_cast<float>(node.attributes.real("softcap", 0));
  state->window = node.attributes.integer("window", 0);
  return state;
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa, {.op = "plait.PagedAttention", .dtypes = rounds_x(isa) ? "f32 x bf16" : "f32 x f32|bf16",
                          .accepts = accepts<isa>, .prepare = prepare, .scratch_bytes = scratch_bytes,
                          .run = run<isa>});
}

}  // namespace

void add_attention(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
}

}  // namespace plait::cpu

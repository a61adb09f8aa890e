// plait.Experts: rows of x sorted by expert, then two products over all experts at once, each with only its own rows;
// the arithmetic is that of Linear.
//
// A token's row has the same bits in any batch, since products do (linear_tile.h), and a token's experts are added in
// the order of its choices. Only weights of chosen experts are read.
#include <tuple>

#include "kernels/cpu/linear/experts.h"
#include "kernels/cpu/linear/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// The slots of one expert, and the split of its current product.
struct Group {
  int64_t expert, begin, rows;
  int64_t first_item, column_items;
  int64_t packed;  ///< where its packed rows begin
  LinearPlan plan;
};

/// Bytes of packed rows of up to `active` groups with `slots` rows in all: groups are rounded up, to 16 rows at most,
/// and tiles of panels have at least 6 rows.
int64_t packed_bytes_of(Isa isa, const ExpertsSizes& s, int64_t inner) {
  return align(packed_tiles(isa).bytes(s.slots + s.slots / 4 + 16 * s.active, inner)) + 64 * s.active;
}

/// Scratch of a call, in the order of its parts.
struct Scratch {
  int64_t groups, order, place, first;  ///< numbers
  int64_t rows;                         ///< x by slot, arranged; then the outputs by slot
  int64_t hidden, arranged, packed;
  int64_t block, side, unpacked;  ///< of each worker

  Scratch(Isa isa, const ExpertsOperands& all, const ExpertsSizes& s, int threads)
      : groups(align(s.active * static_cast<int64_t>(sizeof(Group)))),
        order(align(8 * s.slots)),
        place(order),
        first(align(8 * (s.e + 1))),
        rows(align(4 * s.slots * std::max(s.h_inner, s.o))),
        hidden(align(4 * s.slots * s.f)),
        arranged(all.weight(in_down, 0).is_blocked ? align(4 * s.slots * s.f_inner) : 0),
        packed(0),
        block(0),
        side(0),
        unpacked(0) {
    const bool packs = packs_x(isa, s.slots);
    if (packs) packed = std::max(packed_bytes_of(isa, s, s.h_inner), packed_bytes_of(isa, s, s.f_inner));
    auto product = [&](int64_t n, int64_t inner, size_t which) {
      // For any number of rows of a group: few rows take the widest items, many the tallest.
      const int64_t few = std::min(s.slots, few_rows(isa)), wide = item_columns(isa, few, n, inner, threads),
                    narrow = plan_columns(isa, n, inner, threads), tall = std::min(s.slots, most_rows) + 16;
      const PackedTiles& tiles = packed_tiles(isa);
      if (packs) block = std::max(block, align(4 * tiles.scratch(s.slots, narrow, inner)));
      if (packs_x(isa, few)) block = std::max(block, align(4 * tiles.scratch(few, wide, inner)));
      side = std::max({side, align(4 * (few + 1) * wide), align(4 * (tall + 1) * narrow)});
      if (Weight w = all.weight(which, 0); w.is_blocked)
        unpacked = std::max(unpacked, align(4 * blocked_scratch(w.blocked)));
    };
    product(s.f, s.h_inner, in_gate);
    product(s.o, s.f_inner, in_down);
  }
  int64_t shared() const { return groups + order + place + first + rows + hidden + arranged + packed; }
  int64_t bytes(int threads) const { return shared() + (block + side + unpacked) * threads; }
};

/// One call.
template <Isa isa>
class Run {
 public:
  Run(const KernelCall& call, const ExpertsOperands& all)
      : call_(call), all_(all), s_(all), scratch_(isa, all, s_, call.pool.size()) {
    std::byte* next = call.scratch.data();
    auto take = [&]<class T>(T*& to, int64_t bytes) {
      to = reinterpret_cast<T*>(next);
      next += bytes;
    };
    take(groups_, scratch_.groups);
    take(order_, scratch_.order);
    take(place_, scratch_.place);
    take(first_, scratch_.first);
    take(rows_, scratch_.rows);
    take(hidden_, scratch_.hidden);
    take(arranged_, scratch_.arranged);
    take(packed_, scratch_.packed);
    take(own_, 0);
  }

  KernelStatus run() {
    if (KernelStatus status = sort(); status.code != KernelCode::ok) return status;
    if (held_ == 0) {
      if (s_.t) memset(call_.outputs[0].data, 0, static_cast<size_t>(call_.outputs[0].bytes()));
      return {};
    }
    gather();
    product(rows_, s_.h_inner, s_.f,
            [this](const Worker& worker, const Group& group, const Item& item) { inner(worker, group, item); });
    const float* hidden = hidden_;
    if (scratch_.arranged) {
      arrange(
          hidden_, s_.f, in_down, [](int64_t slot) { return slot; }, arranged_, s_.f_inner);
      hidden = arranged_;
    }
    product(hidden, s_.f_inner, s_.o,
            [this](const Worker& worker, const Group& group, const Item& item) { outer(worker, group, item); });
    add_up();
    return {};
  }

 private:
  /// Rows [i, i + rows) of a group, columns [j, j + columns).
  struct Item {
    int64_t i, rows, j, columns;
  };

  /// Slots in the order of their experts, those of one expert in token order.
  KernelStatus sort() {
    std::fill_n(first_, s_.e + 1, 0);
    for (int64_t slot = 0; slot < s_.slots; ++slot) {
      const int64_t number = number_of(slot), expert = expert_of(slot);
      if (!all_.state.experts.contains(number, s_.e)) return {KernelCode::index_out_of_range, in_experts, number};
      if (expert >= 0) ++first_[expert + 1], ++held_;
    }
    for (int64_t expert = 0; expert < s_.e; ++expert) {
      if (first_[expert + 1]) groups_[count_++] = {expert, first_[expert], first_[expert + 1], 0, 0, 0, {}};
      first_[expert + 1] += first_[expert];
    }
    for (int64_t slot = 0; slot < s_.slots; ++slot) {
      const int64_t expert = expert_of(slot);
      place_[slot] = expert < 0 ? -1 : first_[expert]++;
      if (expert >= 0) order_[place_[slot]] = slot;
    }
    return {};
  }
  /// Index of a slot's expert among the local ones; -1 if another rank has it.
  int64_t expert_of(int64_t slot) const { return all_.state.experts.place(number_of(slot), s_.e); }
  int64_t number_of(int64_t slot) const {
    const TensorView& experts = all_.at[in_experts];
    return experts.dtype == DType::i64 ? experts.as<int64_t>()[slot] : experts.as<int32_t>()[slot];
  }

  /// Rows `from(place)` of x [.., given], in the form of weight `which`, to row `place`.
  template <class From>
  void arrange(const float* x, int64_t given, size_t which, From from, float* to, int64_t inner) {
    const Weight weight = all_.weight(which, 0);
    share_ranges(call_.pool, held_, 1, inner, [&](int64_t begin, int64_t end, int) {
      for (int64_t place = begin; place < end; ++place) {
        const float* row = x + from(place) * given;
        if (!weight.is_blocked) memcpy(to + place * inner, row, static_cast<size_t>(given) * sizeof(float));
        else if constexpr (!rounds_x(isa)) blocked_tiles(isa).arrange(row, given, weight.blocked, to + place * inner);
      }
    });
  }
  void gather() {
    arrange(
        all_.at[in_x].as<float>(), s_.h, in_gate, [this](int64_t place) { return order_[place] / s_.k; }, rows_,
        s_.h_inner);
  }

  /// Calls task(worker, group, item) for all items of a product of rows [slots, inner] with n rows of each weight.
  template <class Task>
  void product(const float* rows, int64_t inner, int64_t n, Task task) {
    const int threads = call_.pool.size();
    const PackedTiles& tiles = packed_tiles(isa);
    int64_t items = 0, packs = 0, packed = 0;
    for (Group& group : groups()) {
      group.plan = make_plan(isa, group.rows, n, inner, threads);
      group.first_item = items;
      group.column_items = (n + group.plan.columns - 1) / group.plan.columns;
      items += group.column_items * ((group.rows + group.plan.rows - 1) / group.plan.rows);
      group.packed = packed;
      if (!packs_x(isa, group.rows)) continue;
      packed += align(tiles.bytes(group.rows, inner));
      ++packs;
    }
    if (packs)
      share(call_.pool, count_, s_.slots * inner, [&](int64_t index, int) {
        const Group& group = groups_[index];
        if (!packs_x(isa, group.rows)) return;
        const int64_t together = tiles.group(group.rows);
        for (int64_t i = 0; i * together < group.rows; ++i)
          tiles.pack(rows + group.begin * inner, group.rows, inner, i, packed_ + group.packed);
      });
    share(call_.pool, items, s_.slots * n * inner, [&](int64_t item, int index) {
      const Group* group = groups_;
      while (group + 1 < groups_ + count_ && group[1].first_item <= item) ++group;
      item -= group->first_item;
      const int64_t i = item / group->column_items * group->plan.rows,
                    j = item % group->column_items * group->plan.columns;
      std::byte* own = own_ + index * (scratch_.block + scratch_.side + scratch_.unpacked);
      task(Worker{rows + group->begin * inner, inner, packs_x(isa, group->rows) ? packed_ + group->packed : nullptr,
                  tiles.group(group->rows), reinterpret_cast<float*>(own),
                  reinterpret_cast<float*>(own + scratch_.block),
                  reinterpret_cast<float*>(own + scratch_.block + scratch_.side), threads},
           *group, Item{i, std::min(group->plan.rows, group->rows - i), j, std::min(group->plan.columns, n - j)});
    });
  }

  /// activation(gate) * up, of a part of the hidden columns.
  void inner(const Worker& worker, const Group& group, const Item& item) {
    const auto [i, rows, j, columns] = item;
    const ExpertsState& state = all_.state;
    float* to = hidden_ + (group.begin + i) * s_.f + j;
    float *gate = all_.gated() ? worker.side : to, *buffer = worker.side + rows * columns;
    const int64_t ld = all_.gated() ? columns : s_.f;
    multiply(worker, group, in_gate, item, gate, ld, buffer);
    if (all_.gated()) multiply(worker, group, in_up, item, to, s_.f, buffer);
    const auto activation = static_cast<int>(state.activation);
    for (int64_t row = 0; row < rows; ++row) {
      float *g = gate + row * ld, *up = to + row * s_.f;
      if (state.activates()) activate(g, all_.gated() ? up : nullptr, columns);
      if (all_.gated()) loops_.gate[activation](g, up, columns);
      else loops_.unary[activation](g, g, columns);
      if (state.alpha != 1) loops_.binary[static_cast<int>(Binary::mul)](up, 1, &inverse_alpha_, 0, up, columns);
    }
  }
  /// Limits, the sharper gate, and the addend of `up`; f(alpha g) / alpha is g sigmoid(alpha g) for f = silu.
  void activate(float* gate, float* up, int64_t columns) const {
    const auto [limit, alpha, beta] = std::tuple(all_.state.limit, all_.state.alpha, all_.state.beta);
    for (int64_t c = 0; c < columns; ++c) {
      if (limit > 0) gate[c] = std::min(gate[c], limit);
      gate[c] *= alpha;
      if (!up) continue;
      if (limit > 0) up[c] = std::clamp(up[c], -limit, limit);
      up[c] += beta;
    }
  }
  void outer(const Worker& worker, const Group& group, const Item& item) {
    multiply(worker, group, in_down, item, rows_ + (group.begin + item.i) * s_.o + item.j, s_.o, worker.side);
  }
  /// A block of the product with one weight of the group's expert, and its bias.
  void multiply(const Worker& worker, const Group& group, size_t which, const Item& item, float* y, int64_t ldy,
                float* buffer) {
    const auto [i, rows, j, columns] = item;
    run_block<isa>(worker, all_.weight(which, group.expert), i, rows, j, columns, y, ldy, nullptr);
    if (const uint8_t* bias = all_.bias(which, group.expert))
      add_bias(loops_, bias, all_.bias_dtype(which), j, rows, columns, y, ldy, buffer);
  }

  void add_up() {
    const auto mul = loops_.binary[static_cast<int>(Binary::mul)], add = loops_.binary[static_cast<int>(Binary::add)];
    const auto* shares = all_.at[in_shares].as<float>();
    auto* y = call_.outputs[0].as<float>();
    share_ranges(call_.pool, s_.t, 1, s_.k * s_.o, [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        float* to = y + token * s_.o;
        bool first = true;
        for (int64_t slot = token * s_.k; slot < (token + 1) * s_.k; ++slot) {
          if (place_[slot] < 0) continue;
          float* row = rows_ + place_[slot] * s_.o;
          mul(row, 1, shares + slot, 0, first ? to : row, s_.o);
          if (!first) add(to, 1, row, 1, to, s_.o);
          first = false;
        }
        if (first) std::fill_n(to, s_.o, 0.0f);
      }
    });
  }

  std::span<Group> groups() { return {groups_, static_cast<size_t>(count_)}; }

  const KernelCall& call_;
  const ExpertsOperands& all_;
  const ExpertsSizes s_;
  const Scratch scratch_;
  const ElementwiseLoops& loops_ = elementwise_loops(loops_of(isa));
  const float inverse_alpha_ = 1 / all_.state.alpha;
  Group* groups_ = nullptr;
  int64_t count_ = 0, held_ = 0;                 ///< groups, and slots in them
  int64_t *order_ = nullptr, *place_ = nullptr;  ///< slot by place, and back
  int64_t* first_ = nullptr;                     ///< by expert: offset of its slots, then of the next slot
  float *rows_ = nullptr, *hidden_ = nullptr, *arranged_ = nullptr;
  std::byte *packed_ = nullptr, *own_ = nullptr;
};

template <Isa isa>
KernelStatus run(const KernelCall& call) {
  const ExpertsOperands all(*static_cast<const ExpertsState*>(call.state), call.inputs);
  if (int32_t slot = misfit(all, ExpertsSizes(all))) return {KernelCode::bad_value, slot, all.at[slot].shape.back(1)};
  return Run<isa>(call, all).run();
}

template <Isa isa>
int64_t scratch_bytes(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  const ExpertsOperands all(*static_cast<const ExpertsState*>(state), inputs);
  return Scratch(isa, all, ExpertsSizes(all), threads).bytes(threads);
}

bool accepts(const NodeInfo& node) { return accepts_experts(node.inputs); }

/// As in Linear: x may be rounded to bf16 if the node has round_x, and all its weights are bf16.
bool accepts_rounded(const NodeInfo& node) {
  if (!accepts(node) || node.attributes.integer("round_x", 0) != 1) return false;
  auto is_bf16 = [&](size_t which) { return is_absent(node, which) || node.inputs[which].dtype == DType::bf16; };
  return is_bf16(in_gate) && is_bf16(in_up) && is_bf16(in_down);
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.Experts",
              .dtypes = rounds_x(isa) ? "f32 x bf16, round_x" : "f32 x f32|bf16|f16|2 to 8 bits",
              .accepts = rounds_x(isa) ? accepts_rounded : accepts,
              .prepare = prepare_experts,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run<isa>});
}

}  // namespace

void add_experts(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu

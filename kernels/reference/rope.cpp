// Rotary position embedding: ONNX RotaryEmbedding-23, com.microsoft.RotaryEmbedding, plait.RoPE.
#include "kernels/reference/families.h"
#include "kernels/reference/heads.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/rotate.h"

namespace plait::reference {
namespace {

struct RopeAttributes {
  explicit RopeAttributes(const NodeInfo& node)
      : interleaved(node.attributes.integer("interleaved", 0) != 0), heads(node.attributes.integer("num_heads", 0)),
        width(node.attributes.integer("rotary_embedding_dim", 0)), scale(node.attributes.real("scale", 1)) {}
  bool interleaved;
  int64_t heads, width;  ///< 0: not given
  double scale;
};

/// x as heads [b, s, h, d], rotated; row_of(b, s) is a token's row of cos and sin [rows, z], range-checked:
/// index_out_of_range in operand `slot`.
template <class RowOf>
KernelStatus rotate_heads(const TensorView& x, const Heads& heads, const TensorView& cos, const TensorView& sin,
                          const TensorView& y, const RopeAttributes& attributes, int32_t slot, RowOf row_of) {
  int64_t z = cos.shape.back(1), rows = cos.elements() / std::max<int64_t>(z, 1);
  if (2 * z > heads.d) return {KernelCode::bad_value, slot, z};
  std::vector<double> head(static_cast<size_t>(heads.d)), c(static_cast<size_t>(z)), s(static_cast<size_t>(z));
  for (int64_t b = 0; b < heads.b; ++b)
    for (int64_t t = 0; t < heads.s; ++t) {
      int64_t row = row_of(b, t);
      if (row < 0 || row >= rows) return {KernelCode::index_out_of_range, slot, row};
      load(cos, row * z, z, c.data());
      load(sin, row * z, z, s.data());
      for (int64_t h = 0; h < heads.h; ++h) {
        load(x, heads.at(b, h, t), heads.d, head.data());
        rotate(head.data(), c.data(), s.data(), z, attributes.interleaved);
        if (attributes.scale != 1)
          for (double& value : head) value *= attributes.scale;
        store(y, heads.at(b, h, t), heads.d, head.data());
      }
    }
  return {};
}

/// x [b, h, s, d] or [b, s, h d], cos and sin [positions, z] with position_ids [b, s], or [b, s, z] without.
KernelStatus rotary_embedding(const KernelCall& call, const RopeAttributes& attributes) {
  const TensorView &x = call.inputs[0], &cos = call.inputs[1], positions = input(call, 3);
  Heads heads = x.shape.rank() == 4 ? heads_first(x.shape) : heads_last(x.shape, attributes.heads);
  std::vector<int64_t> ids;
  if (positions.present()) ids = to_ints(positions);
  return rotate_heads(x, heads, cos, call.inputs[2], call.outputs[0], attributes, positions.present() ? 3 : 1,
                      [&](int64_t b, int64_t t) {
                        return ids.empty() ? b * heads.s + t : ids[static_cast<size_t>(b * heads.s + t)];
                      });
}

/// com.microsoft: x [b, h, s, d] or [b, s, h d], position_ids [1] (of the first token) or [b, s], cos, sin
/// [positions, z]. The head size is 2 z by default, or follows from num_heads.
KernelStatus microsoft_rotary_embedding(const KernelCall& call, const RopeAttributes& attributes) {
  const TensorView &x = call.inputs[0], &cos = call.inputs[2];
  int64_t count =
      attributes.heads > 0 ? attributes.heads : x.shape.back(1) / std::max<int64_t>(1, 2 * cos.shape.back(1));
  Heads heads = x.shape.rank() == 4 ? heads_first(x.shape) : heads_last(x.shape, count);
  std::vector<int64_t> ids = to_ints(call.inputs[1]);
  return rotate_heads(x, heads, cos, call.inputs[3], call.outputs[0], attributes, 1, [&](int64_t b, int64_t t) {
    return ids.size() == 1 ? ids[0] + t : ids[static_cast<size_t>(b * heads.s + t)];
  });
}

/// plait.RoPE: x [b, t, g, d], cos and sin [b, t, z].
KernelStatus rope(const KernelCall& call, const RopeAttributes& attributes) {
  const TensorView& x = call.inputs[0];
  Heads heads = heads_last(x.shape, x.shape[2]);
  return rotate_heads(x, heads, call.inputs[1], call.inputs[2], call.outputs[0], attributes, 1,
                      [&](int64_t b, int64_t t) { return b * heads.s + t; });
}

}  // namespace

void add_rope(KernelTable& table) {
  add<rotary_embedding>(table, "RotaryEmbedding", floats, 0);
  add<microsoft_rotary_embedding>(table, "com.microsoft.RotaryEmbedding", floats, 0);
  add<rope>(table, "plait.RoPE", floats, 0);
}

}  // namespace plait::reference

// The gradient of ONNX's Attention, in ordinary ops: graphs that are not recognised keep the op, and its scores are a
// matrix [q, k] per head anyway.
#include <cmath>

#include "core/graph/gradient.h"
#include "core/ops/base/rows.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// Scores and their gradients as [b, g, r, q, k], operands as [b, g, r or 1, length, size].
class AttentionBack {
 public:
  explicit AttentionBack(GradientContext& context) : context_(context), flat_(dims(0).size() == 3) {
    for (size_t k : {size_t{4}, size_t{5}, size_t{6}})
      if (context.input(k) != no_value) GradientContext::fail("a past has none");
    for (size_t k = 1; k < 4; ++k)
      if (context.gradient(k) != no_value) GradientContext::fail("its caches and scores have none");
    const Attributes& attributes = context.attributes();
    g_ = flat_ ? Dim(attributes.integer("kv_num_heads", 0)) : dims(1)[1];
    const Dim h = flat_ ? Dim(attributes.integer("q_num_heads", 0)) : dims(0)[1];
    const std::optional<Dim> r = h.divided(g_);
    if (!r) GradientContext::fail("the heads that share a key are known only when it runs");
    r_ = *r;
    q_ = grouped(context.input(0), r_), k_ = grouped(context.input(1), Dim(1)),
    v_ = grouped(context.input(2), Dim(1));
    dy_ = grouped(context.gradient(), r_);
    const Dim d = context.dims(q_)[4];
    if (!d.is_constant()) GradientContext::fail("the size of a head is known only when it runs");
    scale_ = attributes.real("scale", 0);
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(d.constant()));
    softcap_ = attributes.real("softcap", 0);
  }

  void run() {
    ValueId capped = context_.times(context_.add("MatMul", {q_, last_two_swapped(k_)}), number(scale_));
    ValueId slope = no_value;  // of the soft cap
    if (softcap_ > 0) {
      const ValueId bent = context_.add("Tanh", {context_.times(capped, number(1 / softcap_))});
      slope = context_.minus(number(1), context_.times(bent, bent));
      capped = context_.times(bent, number(softcap_));
    }
    // A query that sees no key gives zeros, where plain Softmax would give NaN.
    const ValueId scores = masked(capped), hidden = context_.add("Equal", {scores, number(-INFINITY)});
    const ValueId shares = context_.add("Where", {hidden, number(0), context_.add("Softmax", {scores})});
    const ValueId dshares = context_.add("MatMul", {dy_, last_two_swapped(v_)});
    ValueId dscores = context_.add("plait.SoftmaxBack", {shares, dshares});
    give_mask(dscores);
    if (slope != no_value) dscores = context_.times(dscores, slope);
    dscores = context_.times(dscores, number(scale_));
    if (context_.wants(0)) context_.give(0, ungrouped(context_.add("MatMul", {dscores, k_}), 0));
    if (context_.wants(1)) context_.give(1, ungrouped(context_.add("MatMul", {last_two_swapped(dscores), q_}), 1));
    if (context_.wants(2)) context_.give(2, ungrouped(context_.add("MatMul", {last_two_swapped(shares), dy_}), 2));
  }

 private:
  Dims dims(size_t k) const { return context_.dims(context_.input(k)); }
  ValueId number(double value) { return context_.number(value, q_); }

  ValueId transposed(ValueId a, std::vector<int64_t> perm) {
    return context_.add("Transpose", {a}, one_attribute("perm", std::move(perm)));
  }
  ValueId last_two_swapped(ValueId a) { return transposed(a, {0, 1, 2, 4, 3}); }

  /// [b, length, g r size] or [b, g r, length, size] as [b, g, r, length, size].
  ValueId grouped(ValueId a, const Dim& r) {
    const Dims in = context_.dims(a);
    if (!flat_) return context_.reshaped(a, Dims{in[0], g_, r, in[2], in[3]});
    const std::optional<Dim> size = in[2].divided(g_ * r);
    if (!size) GradientContext::fail("the size of a head is known only when it runs");
    return transposed(context_.reshaped(a, Dims{in[0], in[1], g_, r, *size}), {0, 2, 3, 1, 4});
  }
  /// The inverse, summed over the queries that share a key.
  ValueId ungrouped(ValueId a, size_t operand) {
    if (operand > 0) a = context_.sum(a, {2});
    return context_.reshaped(flat_ ? transposed(a, {0, 3, 1, 2, 4}) : a, context_.input(operand));
  }

  /// A mask [.., q, k] of heads g r as [.., g, r, q, k].
  ValueId grouped_mask() {
    const ValueId mask = context_.input(3);
    Dims in = context_.dims(mask);
    while (in.size() < 4) in.insert(in.begin(), Dim(1));
    const bool heads = in[1] != Dim(1);
    return context_.reshaped(mask, Dims{in[0], heads ? g_ : Dim(1), heads ? r_ : Dim(1), in[2], in[3]});
  }

  /// Sets hidden scores to -infinity.
  ValueId masked(ValueId scores) {
    const ValueId never = number(-INFINITY);
    if (context_.input(3) != no_value) {
      const ValueId mask = grouped_mask();
      if (context_.dims(mask)[4] != context_.dims(scores)[4]) GradientContext::fail("a mask of fewer keys has none");
      scores = context_.type(mask).dtype == DType::boolean ? context_.add("Where", {mask, scores, never})
                                                           : context_.plus(scores, mask);
    }
    const Attributes& attributes = context_.attributes();
    const int64_t left = attributes.integer("left_window_size", -1);
    int64_t right = attributes.integer("right_window_size", -1);
    if (attributes.integer("is_causal", 0) != 0) right = 0;
    if (left < 0 && right < 0) return scores;
    const Dims all = context_.dims(scores);
    ValueId seen = context_.add("Expand", {number(1), context_.sizes(Dims{all[3], all[4]})});
    if (right >= 0) seen = triangle(seen, right, 0);
    if (left >= 0) seen = triangle(seen, -left, 1);
    return context_.add("Where", {context_.add("Greater", {seen, number(0)}), scores, never});
  }

  ValueId triangle(ValueId a, int64_t diagonal, int64_t upper) {
    const ValueId k = context_.reshaped(context_.integers({diagonal}), Dims{});
    return context_.add("Trilu", {a, k}, one_attribute("upper", upper));
  }

  /// A mask of numbers is added to scores after the cap.
  void give_mask(ValueId dscores) {
    if (!context_.wants(3)) return;
    const ValueId mask = context_.input(3);
    context_.give(3, context_.reshaped(context_.summed_to(dscores, grouped_mask()), mask));
  }

  GradientContext& context_;
  const bool flat_;
  Dim g_, r_;
  double scale_ = 1, softcap_ = 0;
  ValueId q_ = no_value, k_ = no_value, v_ = no_value, dy_ = no_value;
};

void of_attention(GradientContext& context) { AttentionBack(context).run(); }

}  // namespace

void register_attention_gradients(OpSet& ops) { ops.differentiate("Attention", of_attention); }

}  // namespace plait

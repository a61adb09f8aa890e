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
    const Attributes& attributes = context.attributes();
    g_ = flat_ ? Dim(attributes.integer("kv_num_heads", 0)) : dims(1)[1];
    const Dim h = flat_ ? Dim(attributes.integer("q_num_heads", 0)) : dims(0)[1];
    const std::optional<Dim> r = h.divided(g_);
    if (!r) GradientContext::fail("the heads that share a key are known only when it runs");
    r_ = *r;
    q_ = grouped(context.input(0), r_);
    k_ = after_past(4, grouped(context.input(1), Dim(1)));
    v_ = after_past(5, grouped(context.input(2), Dim(1)));
    const Dim d = context.dims(q_)[4];
    if (!d.is_constant()) GradientContext::fail("the size of a head is known only when it runs");
    scale_ = attributes.real("scale", 0);
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(d.constant()));
    softcap_ = attributes.real("softcap", 0);
    mode_ = attributes.integer("qk_matmul_output_mode", 0);
  }

  void run() {
    ValueId dk = no_value, dv = no_value;
    if (context_.gradient() != no_value || context_.gradient(3) != no_value) of_result(dk, dv);
    give_keys(1, 4, 1, dk);
    give_keys(2, 5, 2, dv);
  }

 private:
  void of_result(ValueId& dk, ValueId& dv) {
    ValueId dy = context_.gradient();
    dy = grouped(dy == no_value ? context_.zeros(context_.output(0)) : dy, r_);
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
    const ValueId dshares = with_scores(3, context_.add("MatMul", {dy, last_two_swapped(v_)}));
    ValueId dscores = with_scores(2, context_.add("plait.SoftmaxBack", {shares, dshares}));
    if (mode_ == 2) dscores = context_.add("Where", {hidden, number(0), dscores});
    give_mask(dscores);
    dscores = with_scores(1, dscores);
    if (slope != no_value) dscores = context_.times(dscores, slope);
    dscores = with_scores(0, dscores);
    dscores = context_.times(dscores, number(scale_));
    if (context_.wants(0)) context_.give(0, ungrouped(context_.add("MatMul", {dscores, k_}), 0));
    if (context_.wants(1) || context_.wants(4))
      dk = context_.sum(context_.add("MatMul", {last_two_swapped(dscores), q_}), {2});
    if (context_.wants(2) || context_.wants(5))
      dv = context_.sum(context_.add("MatMul", {last_two_swapped(shares), dy}), {2});
  }

  /// The gradient of scores, with that of the output that hands them out if it has those of this step.
  ValueId with_scores(int64_t mode, ValueId a) {
    if (mode != mode_ || context_.gradient(3) == no_value) return a;
    return context_.plus(a, context_.reshaped(context_.gradient(3), context_.dims(a)));
  }

  /// Keys or values [b, g, 1, length, size] after those of the past, if there are any.
  ValueId after_past(size_t operand, ValueId a) {
    const ValueId past = context_.input(operand);
    if (past == no_value) return a;
    return context_.add("Concat", {with_group(past), a}, one_attribute("axis", int64_t{3}));
  }
  /// A cache [b, g, length, size] as keys are here.
  ValueId with_group(ValueId cache) { return context_.add("Unsqueeze", {cache, context_.integers({2})}); }

  /// Of keys or values and of their past, by the gradient of all of them and by that of the cache that the node makes.
  void give_keys(size_t operand, size_t past, size_t cache, ValueId all) {
    if (context_.gradient(cache) != no_value) {
      const ValueId own = with_group(context_.gradient(cache));
      all = all == no_value ? own : context_.plus(all, own);
    }
    if (all == no_value || !(context_.wants(operand) || context_.wants(past))) return;
    if (context_.input(past) == no_value) return context_.give(operand, ungrouped(all, operand));
    const Dim length = dims(operand)[flat_ ? 1 : 2];
    const std::vector<ValueId> parts = context_.add_all("Split", {all, context_.sizes(Dims{dims(past)[2], length})},
                                                        {true, true}, one_attribute("axis", int64_t{3}));
    context_.give(past, context_.reshaped(parts[0], context_.input(past)));
    context_.give(operand, ungrouped(parts[1], operand));
  }

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
  /// The inverse.
  ValueId ungrouped(ValueId a, size_t operand) {
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

  /// A mask for all keys: those that it is too short for are hidden.
  ValueId hiding_more(ValueId mask, const Dim& keys) {
    Dims more = context_.dims(mask);
    if (more[4] == keys) return mask;
    more[4] = keys - more[4];
    if (!more[4].is_constant() || more[4].constant() < 0)
      GradientContext::fail("whether a mask is for all keys is known only when it runs");
    const bool is_boolean = context_.type(mask).dtype == DType::boolean;
    const uint8_t no = 0;
    const ValueId hides = is_boolean
                              ? context_.graph().add_constant(Tensor::of<uint8_t>(DType::boolean, Shape{}, {&no, 1}))
                              : number(-INFINITY);
    return context_.add("Concat", {mask, context_.add("Expand", {hides, context_.sizes(more)})},
                        one_attribute("axis", int64_t{4}));
  }

  /// Sets hidden scores to -infinity.
  ValueId masked(ValueId scores) {
    const ValueId never = number(-INFINITY);
    if (context_.input(3) != no_value) {
      const ValueId mask = hiding_more(grouped_mask(), context_.dims(scores)[4]);
      scores = context_.type(mask).dtype == DType::boolean ? context_.add("Where", {mask, scores, never})
                                                           : context_.plus(scores, mask);
    }
    const ValueId visible = seen(context_.dims(scores));
    return visible == no_value ? scores : context_.add("Where", {visible, scores, never});
  }

  /// Whether a query may see a key, by the causal rule, the window and the lengths of a padded cache, for scores of these dims;
  /// no_value if there are none of these.
  ValueId seen(const Dims& all) {
    const Attributes& attributes = context_.attributes();
    const int64_t left = attributes.integer("left_window_size", -1),
                  right = attributes.integer("right_window_size", -1);
    const bool causal = attributes.integer("is_causal", 0) != 0;
    ValueId lengths = context_.input(6);
    if (!causal && left < 0 && right < 0 && lengths == no_value) return no_value;
    const ValueId keys = range(all[4]);
    // How far a key lies before its query, which comes after the past, or is one of the last of a padded cache.
    ValueId behind = context_.minus(context_.reshaped(range(all[3]), Dims{all[3], Dim(1)}), keys), out = no_value;
    if (lengths != no_value) {
      lengths = context_.reshaped(lengths, Dims{all[0], Dim(1), Dim(1), Dim(1), Dim(1)});
      out = context_.add("Less", {keys, lengths});
    }
    if (context_.input(4) != no_value) behind = context_.plus(behind, context_.sizes(Dims{dims(4)[2]}));
    else if (lengths != no_value)
      behind = context_.plus(behind, context_.minus(lengths, context_.sizes(Dims{all[3]})));
    auto and_also = [&](ValueId condition) {
      out = out == no_value ? condition : context_.add("And", {out, condition});
    };
    if (causal) and_also(context_.add("GreaterOrEqual", {behind, context_.integers({0})}));
    if (left >= 0) and_also(context_.add("LessOrEqual", {behind, context_.integers({left})}));
    if (right >= 0) and_also(context_.add("GreaterOrEqual", {behind, context_.integers({-right})}));
    return out;
  }

  /// 0, 1, ... below the size.
  ValueId range(const Dim& size) {
    auto scalar = [&](ValueId one) { return context_.reshaped(one, Dims{}); };
    return context_.add("Range", {scalar(context_.integers({0})), scalar(context_.sizes(Dims{size})),
                                  scalar(context_.integers({1}))});
  }

  /// A mask of numbers is added to scores after the cap.
  void give_mask(ValueId dscores) {
    if (!context_.wants(3)) return;
    const ValueId mask = context_.input(3), grouped = grouped_mask();
    const Dims all = context_.dims(dscores), own = context_.dims(grouped);
    if (own[4] != all[4])
      dscores = context_.add("Slice",
                             {dscores, context_.integers({0}), context_.sizes(Dims{own[4]}), context_.integers({4})});
    context_.give(3, context_.reshaped(context_.summed_to(dscores, grouped), mask));
  }

  GradientContext& context_;
  const bool flat_;
  Dim g_, r_;
  double scale_ = 1, softcap_ = 0;
  int64_t mode_ = 0;  ///< which scores are an output: products, capped, masked, shares
  ValueId q_ = no_value, k_ = no_value, v_ = no_value;
};

void of_attention(GradientContext& context) { AttentionBack(context).run(); }

}  // namespace

void register_attention_gradients(OpSet& ops) { ops.differentiate("Attention", of_attention); }

}  // namespace plait

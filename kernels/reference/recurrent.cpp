// CausalConvWithState and LinearAttention (ONNX opset 27), and their forms over ragged rows with states in slots:
// plait.CausalConv and plait.LinearAttention.
#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/recurrent.h"

namespace plait::reference {
namespace {

/// input [b, c, n], weight [c, 1, k], bias? [c], past? [b, c, k - 1] -> output [b, c, n], present? [b, c, k - 1].
KernelStatus causal_conv(const KernelCall& call, const CausalConvAttributes& attributes) {
  const TensorView &x = call.inputs[0], &weight = call.inputs[1], bias = input(call, 2), past = input(call, 3);
  int64_t channels = x.shape[1], n = x.shape[2], taps = weight.shape[2], before = taps - 1;
  if (taps < 1 || weight.shape[0] != channels || weight.shape[1] != 1) return {KernelCode::bad_value, 1, taps};
  if (bias.present() && bias.elements() != channels) return {KernelCode::bad_value, 2, bias.elements()};
  if (past.present() && past.elements() != x.shape[0] * channels * before)
    return {KernelCode::bad_value, 3, past.elements()};
  Loaded<double> weights(weight);
  std::vector<double> line(static_cast<size_t>(before + n)), out(static_cast<size_t>(n));
  for (int64_t row = 0; row < x.shape[0] * channels; ++row) {
    std::fill(line.begin(), line.begin() + before, 0.0);
    if (past.present()) load(past, row * before, before, line.data());
    load(x, row * n, n, line.data() + before);
    double shift = bias.present() ? load_one<double>(bias, row % channels) : 0;
    for (int64_t i = 0; i < n; ++i) {
      double sum = shift;
      for (int64_t tap = 0; tap < taps; ++tap)
        sum += weights[row % channels * taps + tap] * line[static_cast<size_t>(i + tap)];
      out[static_cast<size_t>(i)] = attributes.silu ? silu(sum) : sum;
    }
    store(call.outputs[0], row * n, n, out.data());
    if (output(call, 1).present()) store(call.outputs[1], row * before, before, line.data() + n);
  }
  return {};
}

/// query [b, t, h d], key [b, t, g d], value [b, t, g e], past? [b, g, d, e], decay?, beta? -> output [b, t, h e],
/// present? [b, g, d, e]: the recurrence token by token.
KernelStatus linear_attention(const KernelCall& call, const LinearAttentionAt<4>& attributes) {
  const TensorView past = input(call, 3), present = output(call, 1);
  LinearAttention problem(
      {call.inputs[0], call.inputs[1], call.inputs[2], input(call, 4), input(call, 5), call.outputs[0]}, attributes);
  const int64_t b = call.inputs[0].shape[0], t = call.inputs[0].shape[1], size = problem.d * problem.e;
  if (char which = problem.misfit()) {
    auto slot = static_cast<int32_t>(std::string_view("qkv.db").find(which));
    return {KernelCode::bad_value, slot, input(call, static_cast<size_t>(slot)).elements()};
  }
  if (past.present() && past.elements() != b * problem.g * size) return {KernelCode::bad_value, 3, past.elements()};
  share(call.pool, b * problem.g, b * t * problem.h * size, [&](int64_t i) {
    std::vector<double> state(static_cast<size_t>(size));
    if (past.present()) load(past, i * size, size, state.data());
    problem.run(state, i % problem.g, i / problem.g * t, (i / problem.g + 1) * t, false);
    if (present.present()) store(present, i * size, size, state.data());
  });
  return {};
}

/// The tokens of a segment, and the slots of its previous and next state.
struct SegmentRun {
  int64_t begin, end, from, to;
};

/// One run for each segment that has tokens. `segments` and `slots` are operands 3 and 4, or 4 and 5 of the call; of
/// `states` slots.
KernelStatus read_runs(const KernelCall& call, size_t segments_at, int64_t states, std::vector<SegmentRun>& runs) {
  std::vector<int64_t> segments = to_ints(call.inputs[segments_at]), slots = to_ints(call.inputs[segments_at + 1]);
  const auto at = static_cast<int32_t>(segments_at);
  const auto count = static_cast<int64_t>(slots.size()) / 2;
  std::vector<bool> seen(static_cast<size_t>(count));
  for (size_t i = 0; i < segments.size();) {
    const int64_t segment = segments[i];
    const size_t begin = i;
    while (i < segments.size() && segments[i] == segment) ++i;
    if (segment == -1) continue;
    if (segment < 0 || segment >= count) return {KernelCode::index_out_of_range, at, segment};
    if (seen[static_cast<size_t>(segment)]) return {KernelCode::bad_value, at, segment};  // its tokens are apart
    seen[static_cast<size_t>(segment)] = true;
    const int64_t* slot = slots.data() + 2 * segment;
    for (int64_t one : {slot[0], slot[1]})
      if (one < -1 || one >= states) return {KernelCode::index_out_of_range, at + 1, one};
    runs.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(i), slot[0], slot[1]});
  }
  return {};
}

/// Slots that are not written keep their contents: the state is updated in place, or copied first.
void keep_slots(const KernelCall& call) {
  if (call.outputs[0].data != call.inputs[0].data)
    copy_elements(call.inputs[0], 0, call.outputs[0], 0, call.inputs[0].elements());
}

/// state [u, k - 1, c], x [b, t, c], w [k, c], segments [b, t], slots [n, 2], bias? [c] -> state, y [b, t, c].
KernelStatus slot_conv(const KernelCall& call, const CausalConvAttributes& attributes) {
  const TensorView &state = call.outputs[0], &x = call.inputs[1], &w = call.inputs[2], bias = input(call, 5);
  const int64_t c = x.shape[2], taps = w.shape[0], before = taps - 1;
  if (w.shape[1] != c || taps < 1) return {KernelCode::bad_value, 2, w.shape[1]};
  if (state.shape[1] != before || state.shape[2] != c) return {KernelCode::bad_value, 0, state.shape[1]};
  if (bias.present() && bias.elements() != c) return {KernelCode::bad_value, 5, bias.elements()};
  std::vector<SegmentRun> runs;
  if (KernelStatus status = read_runs(call, 3, state.shape[0], runs); status.code != KernelCode::ok) return status;
  keep_slots(call);
  clear_output(call.outputs[1]);
  Loaded<double> weights(w);
  for (const SegmentRun& run : runs) {
    const int64_t n = run.end - run.begin;
    std::vector<double> lines(static_cast<size_t>((before + n) * c)), out(static_cast<size_t>(c));
    if (run.from >= 0) load(state, run.from * before * c, before * c, lines.data());
    load(x, run.begin * c, n * c, lines.data() + before * c);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t channel = 0; channel < c; ++channel) {
        double sum = bias.present() ? load_one<double>(bias, channel) : 0;
        for (int64_t tap = 0; tap < taps; ++tap)
          sum += weights[tap * c + channel] * lines[static_cast<size_t>((i + tap) * c + channel)];
        out[static_cast<size_t>(channel)] = attributes.silu ? silu(sum) : sum;
      }
      store(call.outputs[1], (run.begin + i) * c, c, out.data());
    }
    if (run.to >= 0) store(state, run.to * before * c, before * c, lines.data() + n * c);
  }
  return {};
}

/// state [u, g, d, e], q [b, t, h d], k, v [b, t, g e], segments [b, t], slots [n, 2], decay?, beta? -> state, y.
KernelStatus slot_attention(const KernelCall& call, const LinearAttentionAt<6>& attributes) {
  const TensorView& state = call.outputs[0];
  LinearAttention problem(
      {call.inputs[1], call.inputs[2], call.inputs[3], input(call, 6), input(call, 7), call.outputs[1]}, attributes);
  if (char which = problem.misfit()) {
    auto slot = static_cast<int32_t>(std::string_view(".qkv..db").find(which));
    return {KernelCode::bad_value, slot, input(call, static_cast<size_t>(slot)).elements()};
  }
  const int64_t g = problem.g, size = problem.d * problem.e;
  if (state.shape[1] != g || state.shape[2] != problem.d || state.shape[3] != problem.e)
    return {KernelCode::bad_value, 0, state.elements()};
  std::vector<SegmentRun> runs;
  if (KernelStatus status = read_runs(call, 4, state.shape[0], runs); status.code != KernelCode::ok) return status;
  keep_slots(call);
  clear_output(call.outputs[1]);
  share(call.pool, static_cast<int64_t>(runs.size()) * g, problem.tokens * problem.n * size, [&](int64_t i) {
    const SegmentRun& run = runs[static_cast<size_t>(i / g)];
    std::vector<double> numbers(static_cast<size_t>(size));
    if (run.from >= 0) load(state, (run.from * g + i % g) * size, size, numbers.data());
    problem.run(numbers, i % g, run.begin, run.end, true);
    if (run.to >= 0) store(state, (run.to * g + i % g) * size, size, numbers.data());
  });
  return {};
}

}  // namespace

void add_recurrent(KernelTable& table) {
  add<causal_conv>(table, "CausalConvWithState", floats);
  add<linear_attention>(table, "LinearAttention", floats);
  add<slot_conv>(table, "plait.CausalConv", floats, 0);
  add<slot_attention>(table, "plait.LinearAttention", floats, 0);
}

}  // namespace plait::reference

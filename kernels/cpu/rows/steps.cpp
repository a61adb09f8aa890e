#include "kernels/cpu/rows/steps.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/cpu/rows/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

constexpr bool is_binary(StepOp op) { return step_ops[static_cast<size_t>(op)].operands == 2; }

int binary_loop(StepOp op) {
  switch (op) {
    case StepOp::sub: return static_cast<int>(Binary::sub);
    case StepOp::mul: return static_cast<int>(Binary::mul);
    case StepOp::div: return static_cast<int>(Binary::div);
    case StepOp::max: return static_cast<int>(Binary::max);
    case StepOp::min: return static_cast<int>(Binary::min);
    case StepOp::prelu: return static_cast<int>(Binary::prelu);
    default: return static_cast<int>(Binary::add);
  }
}

int unary_loop(StepOp op) {
  switch (op) {
    case StepOp::abs: return static_cast<int>(Unary::abs);
    case StepOp::erf: return static_cast<int>(Unary::erf);
    case StepOp::exp: return static_cast<int>(Unary::exp);
    case StepOp::gelu: return static_cast<int>(Unary::gelu);
    case StepOp::hard_swish: return static_cast<int>(Unary::hard_swish);
    case StepOp::neg: return static_cast<int>(Unary::neg);
    case StepOp::reciprocal: return static_cast<int>(Unary::reciprocal);
    case StepOp::relu: return static_cast<int>(Unary::relu);
    case StepOp::sigmoid: return static_cast<int>(Unary::sigmoid);
    case StepOp::sqrt: return static_cast<int>(Unary::sqrt);
    case StepOp::swish: return static_cast<int>(Unary::silu);
    case StepOp::tanh: return static_cast<int>(Unary::tanh);
    default: return static_cast<int>(Unary::identity);
  }
}

}  // namespace

StepsPlan::StepsPlan(const NodeInfo& node, size_t registers)
    : operands(registers),
      coded(node.attributes.has("to")),
      zero(static_cast<float>(node.attributes.integer("zero", 0))) {
  const Attribute* found = node.attributes.find("steps");
  const auto* texts = found ? std::get_if<std::vector<std::string>>(found) : nullptr;
  steps = parse_steps(texts ? *texts : std::vector<std::string>(), registers);
  // A result's tile is free once the last step that reads it has begun: loops work in place.
  std::vector<size_t> last_use(registers + steps.size(), 0);
  readers.resize(registers + steps.size());
  for (size_t s = 0; s < steps.size(); ++s)
    for (int id : {steps[s].a, steps[s].b})
      if (id >= 0) last_use[static_cast<size_t>(id)] = s, ++readers[static_cast<size_t>(id)];
  std::vector<int> free;
  for (size_t s = 0; s < steps.size(); ++s) {
    for (int id : {steps[s].a, steps[s].b == steps[s].a ? -1 : steps[s].b})
      if (id >= static_cast<int>(registers) && last_use[static_cast<size_t>(id)] == s)
        free.push_back(tiles[static_cast<size_t>(id) - registers]);
    if (free.empty()) free.push_back(tile_count++);
    tiles.push_back(free.back());
    free.pop_back();
  }
}

StepsRun::StepsRun(const StepsPlan& plan, std::span<const TensorView> operands, const TensorView& y, bool in_place,
                   Isa isa)
    : plan_(plan), loops_(elementwise_loops(isa)), codes_(code_loops(isa)), y_(y) {
  if (in_place) operands_.push_back({y, y.elements()});
  for (const TensorView& operand : operands) operands_.push_back(operand_of(operand, y.shape));
  for (const Operand& operand : operands_)
    if (operand.period > 1 && operand.period < step_tile) {
      grain_ = step_tile / operand.period * operand.period;
      break;
    }
  read_scaled();
}

void StepsRun::read_scaled() {
  read_by_.assign(plan_.steps.size(), -1);
  const auto number = [&](int id) -> const float* {
    if (id < 0 || id >= static_cast<int>(operands_.size())) return nullptr;
    const Operand& operand = operands_[static_cast<size_t>(id)];
    return operand.period == 1 && operand.tensor.dtype == DType::f32 ? operand.tensor.as<float>() : nullptr;
  };
  for (size_t k = 0; k < operands_.size(); ++k) {
    Operand& operand = operands_[k];
    if (operand.tensor.dtype != DType::u8 && operand.tensor.dtype != DType::i8) continue;
    auto at = static_cast<int>(k);
    bool scaled = false;
    for (size_t s = 0; s + 1 < plan_.steps.size() && plan_.readers[static_cast<size_t>(at)] == 1; ++s) {
      const ElementwiseStep& step = plan_.steps[s];
      if (step.a != at && step.b != at) continue;
      const float* by = number(step.a == at ? step.b : step.a);
      const bool subtracts = step.op == StepOp::sub && step.a == at && at == static_cast<int>(k);
      if (!by || !(subtracts || (step.op == StepOp::mul && !scaled))) break;
      (subtracts ? operand.zero : operand.scale) = *by;
      scaled = !subtracts;
      read_by_[s] = static_cast<int>(k);
      at = static_cast<int>(plan_.operands + s);
    }
  }
}

int32_t StepsRun::misfit(std::span<const TensorView> operands, const Shape& y) {
  for (size_t k = 0; k < operands.size(); ++k) {
    const Shape& own = operands[k].shape;
    bool fits = own.rank() <= y.rank();
    for (int i = 1; fits && i <= own.rank(); ++i) fits = own.back(i) == 1 || own.back(i) == y.back(i);
    if (!fits) return static_cast<int32_t>(k);
  }
  return -1;
}

StepsRun::Operand StepsRun::operand_of(const TensorView& operand, const Shape& y) {
  Operand out{operand};
  int trailing = 0;  // dims that the operand has whole
  const Shape& own = operand.shape;
  while (trailing < own.rank() && trailing < y.rank() && own.back(trailing + 1) == y.back(trailing + 1)) ++trailing;
  out.period = own.elements(own.rank() - trailing, own.rank());
  if (operand.elements() == out.period) return out;
  out.period = 0;
  int64_t step = 1;
  for (int i = 1; i <= y.rank(); ++i) {  // from the back; sizes and steps are reversed: the innermost first
    const int64_t size = y.back(i), has = i <= own.rank() ? own.back(i) : 1, steps = has == 1 ? 0 : step;
    step *= has;
    if (size == 1) continue;
    if (out.rank && out.steps[out.rank - 1] * out.sizes[out.rank - 1] == steps &&
        (steps || !out.steps[out.rank - 1])) {
      out.sizes[out.rank - 1] *= size;
      continue;
    }
    out.sizes[out.rank] = size, out.steps[out.rank++] = steps;
  }
  return out;
}

void StepsRun::load(const Operand& operand, int64_t at, int64_t n, float* to) const {
  const TensorView& tensor = operand.tensor;
  if (tensor.dtype == DType::u8) codes_.u8.dequantize(tensor.as<uint8_t>() + at, n, operand.scale, operand.zero, to);
  else if (tensor.dtype == DType::i8)
    codes_.i8.dequantize(tensor.as<int8_t>() + at, n, operand.scale, operand.zero, to);
  else if (tensor.dtype == DType::i32) codes_.convert(tensor.as<int32_t>() + at, n, to);
  else std::memcpy(to, tensor.as<float>() + at, static_cast<size_t>(n) * sizeof(float));
}

bool StepsRun::store_codes(const float* from, float scale, int64_t at, int64_t n) const {
  return y_.dtype == DType::u8 ? codes_.u8.quantize(from, n, scale, plan_.zero, y_.as<uint8_t>() + at)
                               : codes_.i8.quantize(from, n, scale, plan_.zero, y_.as<int8_t>() + at);
}

/// Elements [begin, begin + n) of y's, as the operand repeats.
void StepsRun::fill(const Operand& operand, int64_t begin, int64_t n, float* to) const {
  if (operand.period) {
    for (int64_t i = 0, at = begin % operand.period; i < n; at = 0) {
      const int64_t count = std::min(n - i, operand.period - at);
      load(operand, at, count, to + i);
      i += count;
    }
    return;
  }
  const int64_t inner = operand.sizes[0];
  for (int64_t i = 0; i < n;) {
    const int64_t column = (begin + i) % inner, count = std::min(n - i, inner - column);
    int64_t row = (begin + i) / inner, at = column * operand.steps[0];
    for (int axis = 1; axis < operand.rank; ++axis) {
      at += row % operand.sizes[axis] * operand.steps[axis];
      row /= operand.sizes[axis];
    }
    load(operand, at, operand.steps[0] ? count : 1, to + i);
    if (!operand.steps[0]) std::fill_n(to + i + 1, count - 1, to[i]);
    i += count;
  }
}

int64_t StepsRun::run(int64_t begin, int64_t end, std::byte* scratch) const {
  struct Register {
    const float* data;
    int64_t step;
  };
  auto* tiles = reinterpret_cast<float*>(scratch);
  float *repeats = tiles + plan_.tile_count * step_tile,
        *numbers = repeats + static_cast<int64_t>(plan_.operands) * step_tile;  // of codes
  Register registers[most_step_operands + most_steps];
  int64_t made[most_step_operands];  // what a repeated operand's tile holds: the place in its period
  int64_t lengths[most_step_operands];
  std::fill_n(made, most_step_operands, -1);
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min(end - i, grain_ - i % grain_);
    for (size_t k = 0; k < operands_.size(); ++k) {
      const Operand& operand = operands_[k];
      const bool floats = operand.tensor.dtype == DType::f32;
      const int64_t at = operand.period ? i % operand.period : 0;
      if (floats && operand.period == 1) registers[k] = {operand.tensor.as<float>(), 0};
      else if (floats && operand.period && at + n <= operand.period)
        registers[k] = {operand.tensor.as<float>() + at, 1};
      else {
        float* to = repeats + static_cast<int64_t>(k) * step_tile;
        if (operand.period == 0 || made[k] != at || lengths[k] < n) fill(operand, i, n, to);
        made[k] = at, lengths[k] = n;
        registers[k] = {to, 1};
      }
    }
    const float* uncoded = numbers;
    float scale = 1;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const ElementwiseStep& step = plan_.steps[s];
      const bool last = s + 1 == plan_.steps.size();
      if (read_by_[s] >= 0) {
        registers[plan_.operands + s] = registers[read_by_[s]];
        continue;
      }
      float* to = !last ? tiles + plan_.tiles[s] * step_tile : plan_.coded ? numbers : y_.as<float>() + i;
      const Register& a = registers[step.a];
      if (last && plan_.coded && step.op == StepOp::div && a.step && !registers[step.b].step) {
        uncoded = a.data, scale = *registers[step.b].data;  // what makes codes divides
        break;
      }
      if (is_binary(step.op)) {
        const Register& b = registers[step.b];
        // Both scalars: one number, which later steps read as an array.
        loops_.binary[binary_loop(step.op)](a.data, a.step, b.data, b.step, to, n);
      } else if (a.step) {
        loops_.unary[unary_loop(step.op)](a.data, to, n);
      } else {
        std::fill_n(to, n, *a.data);
        loops_.unary[unary_loop(step.op)](to, to, n);
      }
      registers[plan_.operands + s] = {to, 1};
    }
    if (plan_.coded && !store_codes(uncoded, scale, i, n))
      return i + (std::find_if(uncoded, uncoded + n, [&](float x) { return std::isnan(x / scale); }) - uncoded);
    i += n;
  }
  return -1;
}

namespace {

struct ChainState : KernelState {
  explicit ChainState(const NodeInfo& node) : plan(node, node.inputs.size()) {}
  StepsPlan plan;
};

std::shared_ptr<const KernelState> prepare_chain(const NodeInfo& node) { return std::make_shared<ChainState>(node); }

bool accepts_chain(const NodeInfo& node) {
  const Attribute* steps = node.attributes.find("steps");
  const auto* texts = steps ? std::get_if<std::vector<std::string>>(steps) : nullptr;
  return texts && !texts->empty() &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const OperandInfo& one) { return StepsRun::takes(one.dtype); }) &&
         (node.outputs.empty() || node.outputs[0].dtype == DType::f32 || node.attributes.has("to"));
}

int64_t chain_scratch(const KernelState* state, std::span<const TensorView>, std::span<const TensorView>,
                      int threads) {
  return threads * StepsRun::worker_bytes(static_cast<const ChainState*>(state)->plan);
}

template <Isa isa>
KernelStatus run_chain(const KernelCall& call) {
  const StepsPlan& plan = static_cast<const ChainState*>(call.state)->plan;
  if (const int32_t k = StepsRun::misfit(call.inputs, call.outputs[0].shape); k >= 0)
    return {KernelCode::bad_value, k, call.inputs[static_cast<size_t>(k)].elements()};
  if (call.outputs[0].elements() == 0) return {};
  const StepsRun run(plan, call.inputs, call.outputs[0], false, isa);
  std::atomic<int64_t> odd{-1};
  const int64_t bytes = StepsRun::worker_bytes(plan);
  share_ranges(call.pool, call.outputs[0].elements(), run.grain(), static_cast<int64_t>(plan.steps.size()),
               [&](int64_t begin, int64_t end, int worker) {
                 const int64_t at = run.run(begin, end, call.scratch.data() + worker * bytes);
                 if (at >= 0) odd.store(at, std::memory_order_relaxed);
               });
  return odd < 0 ? KernelStatus{} : KernelStatus{KernelCode::not_a_number, 0, odd};
}

}  // namespace

void add_steps(KernelTable& table, Isa isa) {
  if (isa != Isa::avx2 && isa != Isa::avx512) return;
  add_kernel(table, isa,
             {.op = "plait.Elementwise",
              .dtypes = "f32, u8, i8, i32",
              .accepts = accepts_chain,
              .prepare = prepare_chain,
              .scratch_bytes = chain_scratch,
              .run = isa == Isa::avx2 ? run_chain<Isa::avx2> : run_chain<Isa::avx512>});
}

}  // namespace plait::cpu

// What stays in memory from the forward pass until the backward pass reads it.
#include "core/passes/train/compile_training.h"
#include "tests/unit/train/runs.h"

namespace plait::test {
namespace {

constexpr int64_t tokens = 512;

/// Adapters of rank 4 on a fixture.
TrainingModel compiled(const char* fixture, DType dtype, Recompute how) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.row_tokens = tokens;
  options.lora.rank = 4;
  options.recompute = how;
  return compile_training(fixture_graph(fixture), World::get().options(dtype), options);
}

/// Bytes of what is made before the head, and read after it.
int64_t kept_bytes(const Program& program) {
  size_t head = 0;
  while (program.instructions[head].kernel == nullptr || program.instructions[head].kernel->op != "plait.HeadLoss")
    ++head;
  const auto at = static_cast<int32_t>(head);
  int64_t sum = 0;
  std::vector<int64_t> bounds;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) bounds.push_back(program.symbols[id].bound);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.place != Buffer::Place::arena || buffer.born >= at || buffer.dies <= at) continue;
    int64_t elements = 1;
    for (const Dim& dim : buffer.dims) elements *= dim.evaluate(bounds);
    sum += elements * dtype_bits(buffer.dtype) / 8;
  }
  return sum;
}

/// One sum of the residual stream a layer as f32, results of products as bf16 (those of adapters' first halves, too),
/// and of attention a number a head: nothing else is kept of a layer.
TEST(TrainingMemory, ResultsOfProductsAreKeptInBf16) {
  for (const char* fixture : {"gemma3-standard23", "llama-standard23", "qwen2-optimum18"}) {
    SCOPED_TRACE(fixture);
    const TrainingModel model = compiled(fixture, DType::bf16, Recompute::rounded);
    int64_t products = 0, attention = 0, width = 0, layers = 0;
    for (const TrainedParameter& one : model.parameters) {
      const bool is_first = one.name.ends_with("lora_A.weight");
      products += one.shape[0];
      if (!is_first || one.name.find("o_proj") == std::string::npos) continue;
      attention += one.shape[1];
      ++layers;
    }
    for (const TrainedParameter& one : model.parameters)
      if (one.name.ends_with("q_proj.lora_A.weight")) width = one.shape[1];
    ASSERT_GT(layers, 1);
    const int64_t statistics = 4 * attention;  // at least as many as there are heads
    const int64_t ends =
        4 * 4 * width + 2 * 4 * attention / layers;  // the last layer's own rows, and tables of angles
    const int64_t expected = tokens * (2 * (products + attention) + 4 * width * layers + statistics + ends);
    EXPECT_LE(kept_bytes(model.program(TrainingProgram::accumulate)), expected);
    EXPECT_GT(kept_bytes(compiled(fixture, DType::bf16, Recompute::off).program(TrainingProgram::accumulate)),
              3 * expected / 2);
  }
}

/// What an instruction reads or makes, with the symbols at their bounds.
std::vector<TensorView> views_of(const Program& program, const std::vector<BufferId>& ids) {
  std::vector<int64_t> bounds;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) bounds.push_back(program.symbols[id].bound);
  std::vector<TensorView> out;
  for (const BufferId id : ids) {
    out.emplace_back();
    if (id < 0) continue;
    const Buffer& buffer = program.buffers[static_cast<size_t>(id)];
    std::vector<int64_t> sizes;
    for (const Dim& dim : buffer.dims) sizes.push_back(dim.evaluate(bounds));
    out.back().dtype = buffer.dtype;
    out.back().shape = Shape(sizes);
  }
  return out;
}

/// No more than some rows' logits are anywhere, in values or while one is made, whether a head has a bias or not.
TEST(TrainingMemory, HeadsHoldNoLogitsOfAllTokens) {
  constexpr int64_t many = 4096, vocabulary = 256;
  for (const char* fixture : {"zoo/gptj/optimum18", "zoo/phi/genai_fp32", "zoo/llama/genai_fp32"})
    for (const DType dtype : {DType::none, DType::bf16})
      for (const int64_t rank : {0, 4}) {
        SCOPED_TRACE(cat(fixture, " ", dtype_name(dtype), " rank ", rank));
        TrainingOptions options = training(OptimizerKind::sgd, 0);
        options.row_tokens = many;
        options.lora.rank = rank;
        const TrainingModel model = compile_training(fixture_graph(fixture), World::get().options(dtype), options);
        for (const auto& program :
             {model.programs.at(TrainingProgram::accumulate), model.programs.at(TrainingProgram::evaluate)})
          for (const Instruction& one : program->instructions) {
            if (!one.kernel) continue;
            const auto in = views_of(*program, one.inputs), out = views_of(*program, one.outputs);
            for (const TensorView& view : out)
              if (view.present() && view.shape.rank()) {
                EXPECT_FALSE(view.shape.back(1) == vocabulary && view.shape.elements() >= many * vocabulary)
                    << one.kernel->op;
              }
            if (one.kernel->op.starts_with("plait.Head") && one.kernel->scratch_bytes) {
              EXPECT_LT(one.kernel->scratch_bytes(one.state.get(), in, out, 1), many * vocabulary * 4);
            }
          }
      }
}

/// The sums of gradients of a row, in sequence.
std::vector<double> gradients(const char* fixture, DType dtype, Recompute how) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  options.recompute = how;
  ThreadPool pool(2);
  TrainingEngine engine(fixture_graph(fixture), World::get().options(dtype), options, pool);
  const auto all = documents();
  const PackedRow row = fill_row(std::vector<TrainingSample>{{all[0], {}}, {all[1], {}}}, std::vector<int64_t>{0, 1});
  for (int step = 0; step < 2; ++step) {  // the first halves of adapters have gradients once the second are not zeros
    engine.accumulate({.rows = {row}, .weight = 1.0 / 28});
    if (step == 0) engine.update(1, 0.1);
  }
  std::vector<double> out;
  for (const TrainedParameter& one : engine.parameters()) {
    const Tensor sums = copy(engine.array(one.key + ".gradient"));
    out.insert(out.end(), sums.as<double>(), sums.as<double>() + sums.elements());
  }
  return out;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(a[i] - b[i], 2);
  return std::sqrt(sum);
}

/// Rounding what is kept takes gradients no further from those of f32 than products of rounded numbers do by
/// themselves.
TEST(TrainingMemory, WhatIsKeptRoundedCostsLessThanRoundingProducts) {
  for (const char* fixture : {"gemma3-standard23", "llama-standard23", "qwen3-dynamo23"}) {
    SCOPED_TRACE(fixture);
    const auto exact = gradients(fixture, DType::none, Recompute::off),
               kept = gradients(fixture, DType::bf16, Recompute::off),
               rounded = gradients(fixture, DType::bf16, Recompute::rounded);
    EXPECT_EQ(gradients(fixture, DType::bf16, Recompute::selective), kept);
    EXPECT_EQ(gradients(fixture, DType::bf16, Recompute::full), kept);
    EXPECT_NE(rounded, kept);
    EXPECT_LT(distance(rounded, kept), distance(kept, exact));
    EXPECT_LT(distance(rounded, exact), 1.5 * distance(kept, exact));
  }
}

/// What an adapter adds is added as its product is made.
TEST(TrainingMemory, AdaptersTakeNoPassOfTheirOwn) {
  const TrainingModel model = compiled("gemma3-standard23", DType::none, Recompute::off);
  std::map<std::string, size_t> ops;
  for (const Instruction& one : model.program(TrainingProgram::accumulate).instructions)
    if (one.kernel) ++ops[one.kernel->op];
  EXPECT_GE(ops["plait.AddLinear"],
            model.parameters.size());  // half of them are second halves; and as many backwards
  EXPECT_LT(ops["Add"], ops["plait.AddLinear"]);
}

}  // namespace
}  // namespace plait::test

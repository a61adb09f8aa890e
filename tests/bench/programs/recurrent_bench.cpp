// What linear attention costs in training: the forward pass of packed rows, its gradient, and how many times the one the other
// takes.
//
//   recurrent_bench [isa] [threads] [--json FILE]     isa: avx2, avx512 (the best one), threads: all processors
//
// Figures are medians. A row is 2048 tokens of documents of one length.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cpu/cpu.h"
#include "tests/bench/programs/figures.h"

namespace {

using namespace plait;

struct Shapes {
  const char* rule;
  int64_t queries, keys, states, d, e, document;
  bool decay_each = false;
};

/// Operands of a call, and its kernel, scratch and results.
class Call {
 public:
  Call(const KernelTable& table, const std::string& op, const Attributes& attributes, std::vector<Tensor> inputs,
       std::vector<Tensor> results, ThreadPool& pool)
      : inputs_(std::move(inputs)), outputs_(std::move(results)), pool_(pool) {
    std::vector<OperandInfo> operands, made;
    for (const Tensor& one : inputs_) {
      operands.push_back({one.dtype(), one.shape().rank()});
      ins_.push_back(one.view());
    }
    for (const Tensor& one : outputs_) {
      made.push_back({one.dtype(), one.shape().rank()});
      outs_.push_back(one.view());
    }
    const NodeInfo node{op, attributes, operands, made};
    kernel_ = table.find(node);
    state_ = kernel_->prepare(node);
    scratch_ = make_blob(kernel_->scratch_bytes(state_.get(), ins_, outs_, pool.size()));
  }

  void run() {
    kernel_->run(
        {state_.get(), ins_, outs_, pool_, {scratch_->mutable_data(), static_cast<size_t>(scratch_->size())}});
  }
  double mebibytes() const { return static_cast<double>(scratch_->size()) / (1 << 20); }

 private:
  std::vector<Tensor> inputs_, outputs_;
  std::vector<TensorView> ins_, outs_;
  ThreadPool& pool_;
  const Kernel* kernel_;
  std::shared_ptr<const KernelState> state_;
  std::shared_ptr<Blob> scratch_;
};

/// Numbers between low and high.
Tensor numbers(int64_t tokens, int64_t width, float low, float high) {
  Tensor out(DType::f32, {1, tokens, width});
  uint32_t seed = static_cast<uint32_t>(width);
  for (int64_t i = 0; i < out.elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.as<float>()[i] = low + (high - low) * static_cast<float>(seed >> 8) / (1 << 24);
  }
  return out;
}

nlohmann::ordered_json measure(const KernelTable& table, ThreadPool& pool, const Shapes& s) {
  constexpr int64_t tokens = 2048;
  const std::string rule = s.rule;
  const bool gated = rule.starts_with("gated"), delta = rule.ends_with("delta");
  Attributes attributes;
  attributes.set("update_rule", rule);
  attributes.set("q_num_heads", s.queries);
  attributes.set("kv_num_heads", s.states);
  Tensor segments(DType::i32, {1, tokens});
  for (int64_t i = 0; i < tokens; ++i) segments.as<int32_t>()[i] = static_cast<int32_t>(i / s.document);
  const float near = 1 / std::sqrt(static_cast<float>(s.d));  // keys of length 1 or less
  std::vector<Tensor> inputs{numbers(tokens, s.queries * s.d, -1, 1), numbers(tokens, s.keys * s.d, -near, near),
                             numbers(tokens, s.states * s.e, -1, 1), segments};
  inputs.push_back(gated ? numbers(tokens, s.states * (s.decay_each ? s.d : 1), -0.2f, 0) : Tensor());
  inputs.push_back(delta ? numbers(tokens, s.states, 0, 1) : Tensor());
  const Tensor y(DType::f32, {1, tokens, std::max(s.queries, s.states) * s.e});
  std::vector<Tensor> with_slope = inputs, gradients;
  with_slope.insert(with_slope.begin(), numbers(tokens, y.shape()[2], -1, 1));
  for (const size_t k : {0, 1, 2, 4, 5})
    gradients.push_back(inputs[k].present() ? Tensor(DType::f32, inputs[k].shape()) : Tensor());
  Call forward(table, "plait.PackedLinearAttention", attributes, inputs, {y}, pool);
  Call backward(table, "plait.PackedLinearAttentionBack", attributes, with_slope, gradients, pool);
  // In turn, so that what else the machine does meets both.
  std::vector<double> ahead_seconds, back_seconds;
  for (const auto start = bench::Clock::now();
       ahead_seconds.size() < 5 || bench::Clock::now() - start < std::chrono::milliseconds(500);) {
    ahead_seconds.push_back(bench::seconds_of([&] { forward.run(); }));
    back_seconds.push_back(bench::seconds_of([&] { backward.run(); }));
  }
  const double ahead = bench::median(ahead_seconds), back = bench::median(back_seconds);
  std::printf(
      "%-11s q %2ld k %2ld states %2ld  d %3ld e %3ld  documents of %4ld%s  forward %7.2f ms  backward %7.2f ms "
      "(%.2f times; %.1f MiB)\n",
      s.rule, s.queries, s.keys, s.states, s.d, s.e, s.document, s.decay_each ? " decay each" : "", 1e3 * ahead,
      1e3 * back, back / ahead, backward.mebibytes());
  return {{"rule", s.rule},
          {"queries", s.queries},
          {"keys", s.keys},
          {"states", s.states},
          {"d", s.d},
          {"e", s.e},
          {"document", s.document},
          {"decay_each", s.decay_each},
          {"forward_seconds", ahead},
          {"backward_seconds", back}};
}

}  // namespace

int main(int argc, char** argv) {
  bench::Figures figures(argc, argv);
  const auto& words = figures.arguments;
  const std::string isa = words.empty() ? "" : words[0];
  const int threads = words.size() > 1 ? std::atoi(words[1].c_str()) : usable_processors();
  KernelTable table;
  register_cpu_kernels(table, isa);
  ThreadPool pool(threads);
  figures.about({{"benchmark", "recurrent"}, {"isa", isa}, {"threads", threads}});
  for (const Shapes& shapes :
       {Shapes{"gated_delta", 8, 8, 16, 128, 128, 2048},  // half of Qwen3-Next's heads
        Shapes{"gated_delta", 8, 8, 16, 128, 128, 256}, Shapes{"gated_delta", 8, 8, 16, 128, 128, 20},
        Shapes{"gated_delta", 16, 16, 16, 64, 128, 2048, true}, Shapes{"delta", 16, 16, 16, 128, 128, 2048},
        Shapes{"gated", 16, 16, 16, 128, 128, 2048}, Shapes{"linear", 16, 16, 16, 64, 64, 2048},
        Shapes{"gated_delta", 4, 4, 4, 20, 24, 2048}})
    figures.add(measure(table, pool, shapes));
  return figures.finish();
}

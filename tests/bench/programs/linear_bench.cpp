// How near plait.Linear comes to the machine: GB/s of weights against the read bandwidth, GFLOP/s against the peak of
// fused multiply-adds, both measured here, with as many threads, in the same run.
//
//   linear_bench [isa] [threads] [--json FILE]     isa: avx2, avx512, ... (the best one), threads: all processors
//
// Each figure is a median. The roofs are measured again before each run, and a share is the median of the shares: so
// they hold, roughly, on a machine that has other work too.
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cpu/cpu.h"
#include "tests/bench/programs/figures.h"

namespace {

using namespace plait;

using bench::Clock, bench::median, bench::seconds_of;

__attribute__((target("avx2"))) int64_t read_all(const std::byte* data, int64_t bytes) {
  // Four streams: the prefetchers follow several pages at once.
  __m256i sum[4] = {};
  const int64_t part = bytes / 4 / 128 * 128;
  for (int64_t i = 0; i < part; i += 64)
    for (int stream = 0; stream < 4; ++stream) {
      const auto* p = reinterpret_cast<const __m256i*>(data + stream * part + i);
      sum[stream] = _mm256_or_si256(sum[stream], _mm256_or_si256(_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)));
    }
  __m256i all = _mm256_or_si256(_mm256_or_si256(sum[0], sum[1]), _mm256_or_si256(sum[2], sum[3]));
  return _mm256_extract_epi64(all, 0);
}

volatile float sink;
constexpr int fma_steps = 1 << 16;  // 150 us

__attribute__((target("avx512f"))) double fma_avx512() {
  __m512 sums[12], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (int j = 0; j < 12; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));  // equal chains would be merged
  for (int i = 0; i < fma_steps; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sums[j] = _mm512_fmadd_ps(a, b, sums[j]);
  for (int j = 1; j < 12; ++j) sums[0] = _mm512_add_ps(sums[0], sums[j]);
  sink = _mm512_cvtss_f32(sums[0]);
  return 2.0 * 16 * 12 * fma_steps;
}
__attribute__((target("avx2,fma"))) double fma_avx2() {
  __m256 sums[12], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (int j = 0; j < 12; ++j) sums[j] = _mm256_set1_ps(static_cast<float>(j));  // equal chains would be merged
  for (int i = 0; i < fma_steps; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sums[j] = _mm256_fmadd_ps(a, b, sums[j]);
  for (int j = 1; j < 12; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
  sink = _mm256_cvtss_f32(sums[0]);
  return 2.0 * 8 * 12 * fma_steps;
}

class Bench {
 public:
  Bench(std::string isa, int threads) : isa_(std::move(isa)), pool_(threads) {
    register_cpu_kernels(table_, isa_);
    memory_ = make_blob(memory_bytes);
    for (int64_t i = 0; i < memory_bytes / 4; ++i)  // small finite numbers in f32 as in bf16
      reinterpret_cast<uint32_t*>(memory_->mutable_data())[i] =
          0x3C003C00u + (static_cast<uint32_t>(i) * 2654435761u >> 25);
  }

  /// Bytes a second that all threads read from memory, now.
  double read_roof() {
    const int64_t part = int64_t{8} << 20;
    if (read_at_ + 2 * part * pool_.size() > memory_bytes) read_at_ = 0;
    double seconds = seconds_of([&] {
      pool_.run(
          [&](int worker) { sink = static_cast<float>(read_all(memory_->data() + read_at_ + worker * part, part)); });
    });
    read_at_ += part * pool_.size();
    return static_cast<double>(part * pool_.size()) / seconds;
  }

  /// Floating-point operations a second of all threads, now.
  double fma_roof() {
    double flops = 0;
    auto burst = [&] {
      pool_.run([&](int worker) {
        double count = isa_ == "avx2" ? fma_avx2() : fma_avx512();
        if (worker == 0) flops = count * pool_.size();
      });
    };
    burst();  // wide registers take some 20 us to come to full speed after a pause
    double seconds = seconds_of(burst);
    return flops / seconds;
  }

  /// Walks through memory so that weights come from there and not from a cache, unless m is large. u4 and u8 are
  /// blocks of 32 with scales in f32 after the codes. `rounded`: x is rounded to bf16, where the kernels do.
  nlohmann::ordered_json linear(int64_t m, int64_t n, int64_t k, DType dtype, bool rounded) {
    const bool blocked = dtype == DType::u4 || dtype == DType::u8;
    const int bits = dtype_bits(dtype), rank = blocked ? 3 : 2;
    Attributes attributes;
    if (blocked) attributes.set("zero", int64_t{1} << (bits - 1));
    if (rounded) attributes.set("round_x", int64_t{1});
    OperandInfo inputs[] = {{DType::f32, 2}, {dtype, rank, true}, {}, {DType::f32, 2, true}};
    OperandInfo outputs[] = {{DType::f32, 2}};
    const NodeInfo node{"plait.Linear", attributes, std::span(inputs, blocked ? 4 : 2), outputs};
    const Kernel* kernel = table_.find(node);
    const auto state = kernel->prepare(node);
    Tensor x(DType::f32, {m, k}), y(DType::f32, {m, n});
    for (int64_t i = 0; i < m * k; ++i) x.as<float>()[i] = static_cast<float>(i % 17) * 0.125f - 1;
    const int64_t codes = packed_bytes(n * k, bits), bytes = codes + (blocked ? n * k / 32 * 4 : 0);
    int64_t offset = 0;
    std::vector<TensorView> ins = {x.view(), {memory_->mutable_data(), dtype, {n, k}}};
    if (blocked) {
      ins[1].shape = {n, k / 32, 32};
      ins.insert(ins.end(), {TensorView{}, {memory_->mutable_data() + codes, DType::f32, {n, k / 32}}});
    }
    std::vector<TensorView> outs = {y.view()};
    auto scratch = make_blob(kernel->scratch_bytes(state.get(), ins, outs, pool_.size()));
    int64_t repeats = std::max<int64_t>(1, (int64_t{16} << 20) / bytes);
    if (m > 16) repeats = 1;
    auto call = [&] {
      for (int64_t i = 0; i < repeats; ++i) {
        if (m <= 16) offset = offset + 2 * bytes > memory_bytes ? 0 : offset + bytes;
        ins[1].data = memory_->mutable_data() + offset;
        if (blocked) ins[3].data = ins[1].data + codes;
        kernel->run({state.get(), ins, outs, pool_, {scratch->mutable_data(), static_cast<size_t>(scratch->size())}});
      }
    };
    call();
    const double read = static_cast<double>(bytes * repeats), flops = 2.0 * static_cast<double>(m * n * k * repeats);
    std::vector<double> times, of_reads, of_fma;
    for (auto start = Clock::now(); times.size() < 7 || Clock::now() - start < std::chrono::milliseconds(200);) {
      double reads = read_roof(), fmas = fma_roof();
      times.push_back(seconds_of(call));
      of_reads.push_back(read / times.back() / reads);
      of_fma.push_back(flops / times.back() / fmas);
    }
    double seconds = median(times), best = *std::min_element(times.begin(), times.end());
    std::printf(
        "m %4ld  n %5ld  k %4ld  %-9s  %6.1f GB/s (best %6.1f) %4.0f %% of reads  %6.1f GFLOP/s (best %6.1f) %3.0f "
        "%% of fma\n",
        m, n, k, (std::string(dtype_name(dtype)) + (rounded ? " x bf16" : "")).c_str(), read / seconds * 1e-9,
        read / best * 1e-9, 100 * median(of_reads), flops / seconds * 1e-9, flops / best * 1e-9,
        100 * median(of_fma));
    return {{"m", m},
            {"n", n},
            {"k", k},
            {"dtype", dtype_name(dtype)},
            {"rounded", rounded},
            {"kernel", kernel->isa},
            {"seconds", seconds},
            {"best_seconds", best},
            {"gb_per_s", read / seconds * 1e-9},
            {"gflop_per_s", flops / seconds * 1e-9},
            {"share_of_reads", median(of_reads)},
            {"share_of_fma", median(of_fma)}};
  }

 private:
  static constexpr int64_t memory_bytes = int64_t{1} << 30;
  std::string isa_;
  ThreadPool pool_;
  KernelTable table_;
  std::shared_ptr<Blob> memory_;
  int64_t read_at_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> isas = cpu_isas();
  if (isas.empty()) return std::puts("no instruction set to measure"), 0;
  bench::Figures figures(argc, argv);
  const auto& words = figures.arguments;
  std::string isa = words.empty() ? isas.back() : words[0];
  int threads = words.size() > 1 ? std::atoi(words[1].c_str()) : usable_processors();
  Bench bench(isa, threads);
  figures.about({{"benchmark", "linear"}, {"isa", isa}, {"threads", threads}});
  for (auto [dtype, rounded] : {std::pair{DType::u4, false},
                                {DType::u8, false},
                                {DType::bf16, false},
                                {DType::bf16, true},
                                {DType::f32, false}})
    for (auto [n, k] : {std::pair<int64_t, int64_t>{2048, 640}, {640, 2048}, {1024, 640}, {2048, 2048}, {32768, 640}})
      for (int64_t m : {1, 2, 4, 8, 16, 32, 64, 128, 512})
        if (n < 10000 || m <= 16) figures.add(bench.linear(m, n, k, dtype, rounded));
  return figures.finish();
}

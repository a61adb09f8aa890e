#include "core/plan/measure/measure.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <system_error>
#include <thread>

#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/base/threads.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"

namespace plait {
namespace {

constexpr int64_t depth = 1024, row_counts[] = {1, 4, 16, 64, 256, 1024};
/// Of three arrays: what fits into a core's caches, into those of a processor, and into memory only.
constexpr int64_t array_elements[] = {int64_t{1} << 13, int64_t{1} << 16, int64_t{1} << 19, int64_t{1} << 23};
constexpr double seconds_each = 0.1;
constexpr int small_steps = 64;

/// The median of runs of one program, in seconds.
class Stopwatch {
 public:
  Stopwatch(Communicator& group, ThreadPool& pool, const CompileOptions& options)
      : group_(group), pool_(pool), options_(options) {}

  double run(const std::string& text, const std::vector<Tensor>& inputs) {
    const PlainModel model = compile_plain(parse_graph(text), options_);
    Store store;
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool_);
    Executor executor(model.program, store, pool_);
    std::vector<TensorView> views;
    for (const Tensor& tensor : inputs) views.push_back(tensor.view());
    return time([&] { executor.run(views); });
  }

  /// Of the slowest rank; all ranks do it at the same time, equally often.
  template <class Work>
  double time(const Work& work) {
    work();
    group_.barrier();
    const double first = once(work);
    const auto times = static_cast<int>(std::clamp(slowest(seconds_each / std::max(first, 1e-7)), 3.0, 1000.0));
    group_.barrier();
    std::vector<double> taken;
    for (int i = 0; i < times; ++i) taken.push_back(once(work));
    std::nth_element(taken.begin(), taken.begin() + times / 2, taken.end());
    return slowest(taken[static_cast<size_t>(times) / 2]);
  }

 private:
  template <class Work>
  static double once(const Work& work) {
    const double begin = monotonic_s();
    work();
    return monotonic_s() - begin;
  }
  double slowest(double seconds) {
    Tensor all = Tensor::of<double>(DType::f64, {1}, {&seconds, 1});
    group_.all_reduce(all.view(), Reduction::max);
    return all.as<double>()[0];
  }

  Communicator& group_;
  ThreadPool& pool_;
  const CompileOptions& options_;
};

Tensor ones(const Shape& shape) {
  Tensor out(DType::f32, shape);
  std::fill_n(out.as<float>(), out.elements(), 1.0f);
  return out;
}

/// Operations a second of products, by their rows.
Speed product_speed(Stopwatch& stopwatch, bool rounded) {
  std::vector<Speed::Point> points;
  const Tensor w = ones({depth, depth});
  for (const int64_t rows : row_counts) {
    const std::string text =
        cat("input %0 \"x\" : f32[", rows, ", ", depth, "]\ninput %1 \"w\" : f32[", depth, ", ", depth,
            "]\nnode \"\" : %2 : ?[...] = plait.Linear(%0, %1)", rounded ? " round_x=1" : "", "\noutput %2");
    const double seconds = stopwatch.run(text, {ones({rows, depth}), w});
    points.push_back({static_cast<double>(rows), 2.0 * static_cast<double>(rows * depth * depth) / seconds});
  }
  return Speed(std::move(points));
}

void measure_memory(Stopwatch& stopwatch, DeviceSpeed& device) {
  std::vector<Speed::Point> points;
  for (const int64_t elements : array_elements) {
    const std::string sizes = cat("f32[", elements, "]");
    const double seconds = stopwatch.run(cat("input %0 \"a\" : ", sizes, "\ninput %1 \"b\" : ", sizes,
                                             "\nnode \"\" : %2 : ?[...] = Add(%0, %1)\noutput %2"),
                                         {ones({elements}), ones({elements})});
    const double bytes = 3.0 * 4 * static_cast<double>(elements);
    points.push_back({bytes, bytes / std::max(seconds - device.launch_s, 1e-9)});
  }
  device.bandwidth = Speed(std::move(points));
}

void measure_launch(Stopwatch& stopwatch, DeviceSpeed& device) {
  std::string text = "input %0 \"x\" : f32[16]\n";
  for (int i = 0; i < small_steps; ++i)
    text += cat("node \"\" : %", i + 1, " : ?[...] = ", i % 2 ? "Floor" : "Sin", "(%", i, ")\n");
  device.launch_s = stopwatch.run(cat(text, "output %", small_steps), {ones({16})}) / small_steps;
}

LinkLevel measure_links(Stopwatch& stopwatch, Communicator& group) {
  const auto sum_s = [&](int64_t elements) {
    const Tensor data = ones({elements});
    return stopwatch.time([&] { group.all_reduce(data.view(), Reduction::max); });
  };
  constexpr int64_t large = int64_t{2} << 20;
  const auto ranks = static_cast<double>(group.size());
  LinkLevel out{.name = "memory", .ranks = group.size()};
  out.latency_s = sum_s(1) / (2 * std::ceil(std::log2(ranks)));
  const double seconds = std::max(sum_s(large) - 2 * std::ceil(std::log2(ranks)) * out.latency_s, 1e-9);
  out.bandwidth = 2 * (ranks - 1) / ranks * 4 * static_cast<double>(large) / seconds;
  return out;
}

}  // namespace

Machine measure_machine(Communicator& group, int threads, const OpSet& ops, const KernelTable& kernels) {
  const CompileOptions options{ops, kernels};
  ThreadPool pool(threads);
  Stopwatch stopwatch(group, pool, options);
  Machine out{.name = "here", .about = cat("measured: ", group.size(), " ranks of ", threads, " threads")};
  out.device.peak[DType::f32] = product_speed(stopwatch, false);
  out.device.peak[DType::bf16] = product_speed(stopwatch, true);
  measure_launch(stopwatch, out.device);
  measure_memory(stopwatch, out.device);
  out.device.memory_bytes = static_cast<double>(usable_memory()) / group.size();
  if (group.size() > 1) out.levels.push_back(measure_links(stopwatch, group));
  else
    out.levels.push_back(
        {.name = "memory", .ranks = 1, .bandwidth = out.device.bandwidth.points().back().speed, .latency_s = 1e-6});
  return out;
}

Machine measure_machine(int ranks, int threads, const OpSet& ops, const KernelTable& kernels) {
  if (threads <= 0) threads = std::max(1, usable_processors() / ranks);
  std::vector<std::unique_ptr<World>> worlds = make_thread_world(ranks);
  Machine out;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> others;
    const auto rank = [&](size_t i) {
      try {
        Machine mine = measure_machine(worlds[i]->communicator(), threads, ops, kernels);
        if (i == 0) out = std::move(mine);
      } catch (...) {
        errors[i] = std::current_exception();
        worlds[i]->communicator().abort("measuring the machine failed");
      }
    };
    others.reserve(worlds.size());
    try {
      for (size_t i = 1; i < worlds.size(); ++i) others.emplace_back(rank, i);
    } catch (const std::system_error& why) {
      worlds[0]->communicator().abort("a rank's thread did not start");
      throw no_thread(cat("thread ", others.size() + 2, " of ", worlds.size()), why);
    }
    rank(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return out;
}

}  // namespace plait

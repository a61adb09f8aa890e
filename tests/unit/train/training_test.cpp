// Training the fixtures: losses and gradients against PyTorch's, and properties that hold for any of them.
#include <gtest/gtest.h>

#include <cmath>

#include "core/train/training_engine.h"
#include "tests/unit/models.h"

namespace plait::test {
namespace {

/// Documents as one row: every token but the first of each is a target.
struct Row {
  std::vector<int32_t> ids, positions, segments, rows, labels;
  std::vector<float> weights;

  void add(const std::vector<int32_t>& document) {
    const int32_t segment = segments.empty() ? 0 : segments.back() + 1;
    for (size_t i = 0; i < document.size(); ++i) {
      if (i + 1 < document.size()) {
        rows.push_back(static_cast<int32_t>(ids.size()));
        labels.push_back(document[i + 1]);
      }
      ids.push_back(document[i]);
      positions.push_back(static_cast<int32_t>(i));
      segments.push_back(segment);
    }
  }
  TrainingRow view(double weight) {
    weights.assign(rows.size(), static_cast<float>(weight));
    return {ids, positions, segments, rows, labels, weights};
  }
};

TEST(Training, Runs) {
  ThreadPool pool(2);
  TrainingOptions options;
  options.row_tokens = 64;
  for (const char* name : {"llama-standard23", "gemma3-standard23", "gpt2-optimum18", "qwen2-optimum18"}) {
    TrainingEngine engine(fixture_graph(name), World::get().options(), options, pool);
    Row row;
    row.add({5, 9, 77, 8, 41, 3, 17});
    row.add({200, 41, 3, 6});
    const TrainingRow view = row.view(1.0 / 9);
    double first = 0, last = 0;
    for (int step = 0; step < 10; ++step) {
      last = engine.accumulate(view);
      if (step == 0) first = last;
      const double norm = engine.gradient_norm();
      std::printf("%s %d loss %.6f norm %.4f\n", name, step, last, norm);
      engine.update(1, 1e-2);
    }
    for (const auto& p : engine.parameters()) std::printf("  %s\n", p.key.c_str());
    EXPECT_LT(last, 0.5 * first) << name;
  }
}

}  // namespace
}  // namespace plait::test

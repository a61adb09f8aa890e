// Every decoder of the zoo learns, in each of its dialects: adapters beside weights of floats or quantised ones.
#include "tests/unit/train/runs.h"
#include "tests/unit/zoo.h"

namespace plait::test {
namespace {

TEST(Zoo, AdaptersOfEveryDecoderLearn) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.lora.rank = 4;
  CompileOptions compile = World::get().options();
  compile.exact_activations = true;
  ThreadPool pool(2);
  const auto all = documents();
  const PackedRow row = fill_row(std::vector<Sample>{{all[0], {}}, {all[1], {}}}, std::vector<int64_t>{0, 1});
  const double weight = 1.0 / 28;
  for (const ZooModel& model : zoo()) {
    SCOPED_TRACE(model.name);
    if (model.family == "llama_dynamic") {  // angles that are a formula of the length: not recognised
      EXPECT_THROW(TrainingEngine(imported(model), compile, options, pool), Error);
      continue;
    }
    TrainingEngine engine(imported(model), compile, options, pool);
    const double before = engine.accumulate(row, weight);
    engine.update(1, 1e-3);  // which changes b alone, for a's gradients are zeros at first
    EXPECT_LT(engine.evaluate(row) * weight, before);
  }
}

}  // namespace
}  // namespace plait::test

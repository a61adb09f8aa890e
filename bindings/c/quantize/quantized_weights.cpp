// Rounds a model's weights for an export.
#include <algorithm>
#include <chrono>

#include "bindings/c/model_export.h"
#include "core/quantize/quantize.h"
#include "core/train/data/dataset.h"

namespace plait::c_api {
namespace {

/// Token ids of the texts to calibrate on; empty: none are given.
std::vector<int32_t> calibration_of(ModelObject& model, const Settings& settings, ThreadPool& pool,
                                    LoadProgress& progress) {
  std::vector<int32_t> out;
  const std::string path = settings.text("calibration");
  if (path.empty()) return out;
  const TokenizerPointer tokenizer = model.has_tokenizer() ? model.tokenizer() : nullptr;
  const Dataset texts = Dataset::read(path, {.tokenizer = tokenizer.get(),
                                             .eos = tokenizer ? tokenizer->eos_id() : std::nullopt,
                                             .seq = settings.integer("calibration_window"),
                                             .cut_long = true,
                                             .pool = &pool,
                                             .progress = &progress,
                                             .progress_until = 0});
  const auto most = static_cast<size_t>(settings.integer("calibration_tokens"));
  for (int64_t i = 0; i < texts.size() && out.size() < most; ++i)
    out.insert(out.end(), texts[i].ids.begin(), texts[i].ids.end());
  out.resize(std::min(out.size(), most));
  return out;
}

}  // namespace

BlockWeights quantized_weights(ModelObject& model, const Settings& settings, LoadProgress& progress) {
  if (!settings.text("checkpoint").empty() || !settings.text("adapter").empty())
    throw Error(Code::invalid_argument,
                "an export rounds the file's own weights, not those of a checkpoint or an adapter",
                "export the trained model first, then round that");
  const int64_t block = settings.integer("block");
  if (block & (block - 1))
    throw Error(Code::invalid_argument, cat("option block is ", block, ", expected a power of two from 16 to 256"));
  for (const char* one : {"bits", "head_bits", "embedding_bits"})
    if (settings.integer(one) == 1)
      throw Error(Code::invalid_argument, cat("option ", one, " is 1, expected 0, or from 2 to 8"));
  ThreadPool pool(usable_processors());
  const QuantizeOptions options{.format = {settings.integer("bits"), block, !settings.boolean("asymmetric")},
                          .head_bits = settings.integer("head_bits"),
                          .embedding_bits = settings.integer("embedding_bits"),
                          .calibration = calibration_of(model, settings, pool, progress),
                          .window = settings.integer("calibration_window")};
  auto last = std::chrono::steady_clock::now();
  const auto note = [&](const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::seconds(2)) return;
    last = now;
    model.log().write(LogLevel::info, text);
  };
  QuantizedWeights out = quantize(model.opened().imported, outputs_with_weights(model_bytes_of(model.opened().source)),
                                  model.compile_options(), options, pool, progress, note);
  for (const std::string& kept : out.kept) model.log().write(LogLevel::info, cat("stays as it is: ", kept));
  model.log().write(LogLevel::info, cat(out.weights.size(), " weights rounded: ", out.bytes_before, " bytes are now ",
                                        out.bytes_after));
  return std::move(out.weights);
}

}  // namespace plait::c_api

#include "core/plan/generate/generation_price.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/compile.h"
#include "core/passes/stage/stage.h"

namespace plait {
namespace {

constexpr int64_t page_tokens = 32;

/// Of a run of some layers.
struct Run {
  double seconds = 0, exposed_s = 0;
  double weight_bytes = 0, cache_bytes = 0;

  Run& add(const Run& other, double times) {
    for (double Run::*member : {&Run::seconds, &Run::exposed_s, &Run::weight_bytes, &Run::cache_bytes})
      this->*member += times * other.*member;
    return *this;
  }
};

RaggedModel compiled(const PlannedDecoder& of, const GenerationCase& how, int64_t layers, int64_t tokens) {
  CompileOptions options = of.compile;
  options.mesh = Mesh::parse(how.tensor > 1 ? cat("tensor=", how.tensor) : std::string());
  return compile_ragged(of.graph_of(layers), options, [&](const Decoder& decoder) {
    // As many pages as the sequences have: attention reads each of them once.
    const int64_t cached = std::max(how.context, how.prompt);
    RaggedBounds bounds{
        .tokens = tokens, .segments = how.sequences, .rows = how.sequences, .page_tokens = page_tokens};
    bounds.pages.assign(decoder.pools.size(), how.sequences * ((cached + page_tokens - 1) / page_tokens));
    bounds.states = how.sequences;
    return bounds;
  });
}

Run run_of_layers(const PlannedDecoder& decoder, const GenerationCase& how, int64_t layers, int64_t tokens,
                  const PriceTerms& terms) {
  const RaggedModel model = compiled(decoder, how, layers, tokens);
  if (!model.program)
    throw Error(Code::internal, cat("the decoder's graph is not recognised: ", model.decoder.why_not));
  const int64_t own = (tokens + model.token_multiple - 1) / model.token_multiple;  // if ranks shard the tokens
  const ProgramPrice price = price_of(*model.program, own, terms, how.sequences);
  Run out{price.seconds, price.exposed()};
  const std::vector<int64_t> sizes = symbol_sizes(*model.program, own, how.sequences);
  for (const StoreEntry& entry : model.program->entries) {
    const double bytes = entry_bytes(entry, sizes, terms);
    (store_keys::is_cache(entry.key) ? out.cache_bytes : out.weight_bytes) += bytes;
  }
  return out;
}

/// A step by what stages can have of it.
struct Step {
  Run layer, ends;  ///< the ends are embedding and head; nothing of a model at hand, whose layers have it all
  Run all(int64_t layers) const { return Run(ends).add(layer, static_cast<double>(layers)); }
};

Step step_of(const PlannedDecoder& decoder, const GenerationCase& how, int64_t tokens, const PriceTerms& terms) {
  Step out;
  if (decoder.graph) {
    const Run all = run_of_layers(decoder, how, decoder.shape.layers, tokens, terms);
    out.layer.add(all, 1 / static_cast<double>(decoder.shape.layers));
    return out;
  }
  const int64_t period = decoder.shape.period();
  out.ends = run_of_layers(decoder, how, period, tokens, terms);
  const Run more = run_of_layers(decoder, how, 2 * period, tokens, terms).add(out.ends, -1);
  out.layer.add(more, 1 / static_cast<double>(period));
  out.ends.add(more, -1);
  return out;
}

/// Layers of each stage, balanced by the work of a step. The head is nearly all of the ends' work.
std::vector<int64_t> stage_layers(const Step& token, int64_t layers, int64_t stages) {
  std::vector<StageUnits::Unit> units(static_cast<size_t>(layers), {token.layer.seconds, token.layer.weight_bytes});
  units.push_back({token.ends.seconds, token.ends.weight_bytes});
  std::vector<int64_t> out = balance(units, std::vector<size_t>(static_cast<size_t>(stages), 1));
  out.back() -= 1;
  return out;
}

/// From stage to stage, what the residual stream has of the step's tokens.
double messages_s(const DecoderShape& shape, const GenerationCase& how, int64_t tokens, const PriceTerms& terms) {
  double out = 0;
  const double bytes = static_cast<double>(tokens * shape.hidden) *
                       dtype_bits(terms.work == DType::none ? DType::f32 : terms.work) / 8;
  for (int64_t stage = 1; stage < how.pipeline; ++stage) {
    const LinkLevel& level = terms.machine.level_between((stage - 1) * how.tensor, stage * how.tensor);
    out += level.latency_s + bytes / level.bandwidth;
  }
  return out;
}

}  // namespace

GenerationPrice price_generation(const PlannedDecoder& decoder, const GenerationCase& how, const PriceTerms& terms) {
  const DecoderShape& shape = decoder.shape;
  if (how.sequences < 1 || how.prompt < 1)
    throw Error(Code::invalid_argument,
                cat(how.sequences, " sequences of ", how.prompt, " tokens cannot be generated from"));
  if (shape.heads % how.tensor || shape.feed_forward % how.tensor || how.pipeline > shape.layers)
    throw Error(Code::invalid_argument,
                cat("tensor=", how.tensor, " and pipeline=", how.pipeline, " do not divide ", shape.heads,
                    " heads, a feed-forward size of ", shape.feed_forward, " and ", shape.layers, " layers"));
  const Step prompts = step_of(decoder, how, how.sequences * how.prompt, terms),
             tokens = step_of(decoder, how, how.sequences, terms);
  const Run prompt = prompts.all(shape.layers), token = tokens.all(shape.layers);
  GenerationPrice out;
  const std::vector<int64_t> layers = stage_layers(tokens, shape.layers, how.pipeline);
  double most = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool last = i + 1 == layers.size();
    const Run stage = (last ? Run(tokens.ends) : Run()).add(tokens.layer, static_cast<double>(layers[i]));
    const Run of_prompt = (last ? Run(prompts.ends) : Run()).add(prompts.layer, static_cast<double>(layers[i]));
    out.slowest_s = std::max(out.slowest_s, stage.seconds);
    out.slowest_prompt_s = std::max(out.slowest_prompt_s, of_prompt.seconds);
    if (const double bytes = stage.weight_bytes + stage.cache_bytes; bytes > most) {
      most = bytes;
      out.weight_bytes = stage.weight_bytes;
      out.cache_bytes = stage.cache_bytes;
    }
  }
  const double message = messages_s(shape, how, how.sequences, terms);
  out.prompt_s = prompt.seconds + messages_s(shape, how, how.sequences * how.prompt, terms);
  out.token_s = token.seconds + message;
  out.exposed_s = token.exposed_s + message;
  return out;
}

}  // namespace plait

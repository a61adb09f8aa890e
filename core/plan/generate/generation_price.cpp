#include "core/plan/generate/generation_price.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"

namespace plait {
namespace {

constexpr int64_t page_tokens = 32;

/// Of a run of some layers.
struct Run {
  double seconds = 0, exposed_s = 0;
};

RaggedModel compiled(const DecoderShape& shape, const GenerationCase& how, int64_t layers, int64_t tokens,
                     const PriceTerms& terms, const KernelTable& kernels) {
  CompileOptions options{terms.ops, kernels};
  options.mesh = Mesh::parse(how.tensor > 1 ? cat("tensor=", how.tensor) : std::string());
  return compile_ragged(decoder_graph(shape, layers, terms.ops), options, [&](const Decoder& decoder) {
    // As many pages as the sequences have: attention reads each of them once.
    const int64_t cached = std::max(how.context, how.prompt);
    RaggedBounds bounds{
        .tokens = tokens, .segments = how.sequences, .rows = how.sequences, .page_tokens = page_tokens};
    bounds.pages.assign(decoder.pools.size(), how.sequences * ((cached + page_tokens - 1) / page_tokens));
    return bounds;
  });
}

Run run_of(const DecoderShape& shape, const GenerationCase& how, int64_t tokens, const PriceTerms& terms,
           const KernelTable& kernels) {
  Run runs[2];
  for (const int64_t layers : {1, 2}) {
    const RaggedModel model = compiled(shape, how, layers, tokens, terms, kernels);
    if (!model.program)
      throw Error(Code::internal, cat("the decoder's graph is not recognised: ", model.decoder.why_not));
    const ProgramPrice price = price_of(*model.program, tokens, terms, how.sequences);
    runs[layers - 1] = {price.seconds, price.exposed()};
  }
  const auto more = static_cast<double>(shape.layers - 1);
  return {runs[0].seconds + more * (runs[1].seconds - runs[0].seconds),
          runs[0].exposed_s + more * (runs[1].exposed_s - runs[0].exposed_s)};
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

GenerationPrice price_generation(const DecoderShape& shape, const GenerationCase& how, const PriceTerms& terms,
                                 const KernelTable& kernels) {
  if (how.sequences < 1 || how.prompt < 1)
    throw Error(Code::invalid_argument,
                cat(how.sequences, " sequences of ", how.prompt, " tokens cannot be generated from"));
  if (shape.heads % how.tensor || shape.feed_forward % how.tensor || how.pipeline > shape.layers)
    throw Error(Code::invalid_argument,
                cat("tensor=", how.tensor, " and pipeline=", how.pipeline, " do not divide ", shape.heads,
                    " heads, a feed-forward size of ", shape.feed_forward, " and ", shape.layers, " layers"));
  const Run prompt = run_of(shape, how, how.sequences * how.prompt, terms, kernels),
            token = run_of(shape, how, how.sequences, terms, kernels);
  const double bytes = dtype_bits(terms.work == DType::none ? DType::f32 : terms.work) / 8.0,
               ranks = static_cast<double>(how.tensor * how.pipeline);
  const auto cached = static_cast<double>(how.sequences * std::max(how.context, how.prompt));
  GenerationPrice out;
  const double message = messages_s(shape, how, how.sequences, terms);
  out.prompt_s = prompt.seconds + messages_s(shape, how, how.sequences * how.prompt, terms);
  out.token_s = token.seconds + message;
  out.exposed_s = token.exposed_s + message;
  out.weight_bytes = static_cast<double>(shape.parameters()) * bytes / ranks;
  out.cache_bytes = 2 * cached * static_cast<double>(shape.layers * shape.kv_heads * shape.head_size) * bytes / ranks;
  return out;
}

}  // namespace plait

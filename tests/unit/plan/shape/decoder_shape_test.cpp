// Decoders by their sizes: what is read, what is refused, and that the engine recognises their graphs.
#include "core/plan/shape/decoder_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "tests/unit/plan/plan_world.h"

namespace plait {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_decoder_shape(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.message();
  }
  return "";
}

TEST(DecoderShape, FillsInWhatIsLeftOut) {
  const DecoderShape gpt = parse_decoder_shape("family=gpt,layers=2,hidden=64,heads=4,vocabulary=100,sequence=32");
  EXPECT_EQ(gpt.kv_heads, 4);
  EXPECT_EQ(gpt.head_size, 16);
  EXPECT_EQ(gpt.feed_forward, 256);
  EXPECT_TRUE(gpt.tied);
  EXPECT_FALSE(parse_decoder_shape("family=llama,layers=2,hidden=64,heads=4,vocabulary=100,sequence=32").tied);
}

/// Known sizes: Llama 3's model cards, and the formula of Narayanan et al. 2021 without its rounding.
TEST(DecoderShape, CountsParameters) {
  EXPECT_EQ(parse_decoder_shape("family=llama,layers=32,hidden=4096,heads=32,kv_heads=8,feed_forward=14336,"
                                "vocabulary=128256,sequence=8192")
                .parameters(),
            8030261248);
  EXPECT_EQ(parse_decoder_shape("family=llama,layers=80,hidden=8192,heads=64,kv_heads=8,feed_forward=28672,"
                                "vocabulary=128256,sequence=8192")
                .parameters(),
            70553706496);
  // GPT-2 of 124M parameters, as transformers counts it.
  EXPECT_EQ(
      parse_decoder_shape("family=gpt,layers=12,hidden=768,heads=12,vocabulary=50257,sequence=1024").parameters(),
      124439808);
  // Mixtral 8x7B's model card: 46.7 billion.
  const std::string mixtral =
      "family=llama,layers=32,hidden=4096,heads=32,kv_heads=8,feed_forward=14336,vocabulary=32000,"
      "experts=8,experts_used=2,sequence=4096";
  EXPECT_EQ(parse_decoder_shape(mixtral).parameters(), 46702792704);
  // Half of the layers have seven MLPs and a router less.
  EXPECT_EQ(parse_decoder_shape(mixtral + ",experts_every=2").parameters(),
            46702792704 - 16 * (int64_t{7} * 3 * 4096 * 14336 + 8 * 4096));
}

TEST(DecoderShape, RefusesContradictions) {
  const std::string rest = ",layers=2,vocabulary=100,sequence=32";
  EXPECT_THAT(refusal_of("layers=2"), testing::HasSubstr("family is missing"));
  EXPECT_THAT(refusal_of("family=gpt,layers=2"), testing::HasSubstr("field hidden is missing"));
  EXPECT_THAT(refusal_of("family=bert" + rest), testing::HasSubstr("\"bert\" is unknown"));
  EXPECT_THAT(refusal_of("family=gpt,hidden=65,heads=4" + rest),
              testing::HasSubstr("65 does not divide into 4 heads"));
  EXPECT_THAT(refusal_of("family=llama,hidden=64,heads=4,kv_heads=3" + rest),
              testing::HasSubstr("4 heads do not divide among 3 kv_heads"));
  EXPECT_THAT(refusal_of("family=llama,hidden=64,heads=4,experts=4,experts_used=8" + rest),
              testing::HasSubstr("experts_used is 8 of 4"));
  EXPECT_THAT(refusal_of("family=llama,hidden=64,heads=4,experts=4" + rest),
              testing::HasSubstr("experts_used is missing"));
  EXPECT_THAT(refusal_of("family=llama,hidden=64,heads=4,experts=4,experts_used=2,experts_every=3" + rest),
              testing::HasSubstr("2 layers are no multiple of experts_every, which is 3"));
  EXPECT_THAT(refusal_of("family=llama,hidden=64,heads=4,experts_every=2" + rest),
              testing::HasSubstr("experts_every is 2, and it has no experts"));
  EXPECT_THAT(refusal_of("family=llama,hidden=0,heads=4" + rest), testing::HasSubstr("field hidden is \"0\""));
  EXPECT_THAT(refusal_of("family=llama,hidden=64,hidden=64,heads=4" + rest), testing::HasSubstr("given twice"));
  EXPECT_THAT(refusal_of("family=llama,width=64"), testing::HasSubstr("\"width\" is unknown"));
}

TEST(DecoderShape, TheEngineRecognisesTheGraph) {
  for (const char* text :
       {"family=gpt,layers=3,hidden=64,heads=4,vocabulary=100,sequence=32",
        "family=llama,layers=3,hidden=64,heads=4,kv_heads=2,vocabulary=100,sequence=32",
        "family=llama,layers=3,hidden=64,heads=4,experts=4,experts_used=2,vocabulary=100,sequence=32",
        "family=llama,layers=3,hidden=64,heads=4,experts=4,experts_used=2,experts_every=3,vocabulary=100,sequence="
        "32"}) {
    const DecoderShape shape = parse_decoder_shape(text);
    const Decoder found =
        recognise(decoder_graph(shape, 3, test::PlanWorld::get().ops), test::PlanWorld::get().options());
    EXPECT_TRUE(found.recognised) << text << ": " << found.why_not;
    ASSERT_EQ(found.layers.size(), 3u) << text;
    EXPECT_EQ(found.layers[0].kv_heads, shape.kv_heads);
    EXPECT_EQ(found.vocabulary, 100);
  }
}

}  // namespace
}  // namespace plait

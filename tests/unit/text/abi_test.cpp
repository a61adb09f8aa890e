// What the C++ wrapper cannot show: panics inside the crate become errors and print nothing.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/text/rust_abi.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

/// The crate's Strip decoder panics on a piece that has nothing but the blanks it strips.
Tokenizer panicking() {
  Parts parts;
  parts.decoder = R"({"type":"Strip","content":"a","start":0,"stop":3})";
  parts.model = bpe_model({"a", "b"}, {});
  return make(parts);
}

TEST(Abi, APanicIsAnErrorAndSilent) {
  Tokenizer tokenizer = panicking();
  std::vector<int32_t> ids = {0};
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  for (int round = 0; round < 3; round++) {
    try {
      tokenizer.decode(ids);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_model);
      EXPECT_NE(error.hint(), "");
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(tokenizer.encode("ab", false), (std::vector<int32_t>{0, 1})) << "the tokenizer still works";
}

TEST(Abi, AStreamSurvivesAPanic) {
  TextStream stream = panicking().stream();
  EXPECT_THROW(stream.push(0), Error);
  EXPECT_THROW(stream.finish(), Error);
}

TEST(Abi, NullsAndEmptyViewsAreFine) {
  plait_text_free(nullptr);
  plait_text_stream_free(nullptr);
  plait_text_bytes_free({});
  plait_text_ids_free({});
  plait_text_files files{};
  plait_text_tokenizer* tokenizer = nullptr;
  EXPECT_EQ(plait_text_create(&files, {1 << 20, 1000}, false, &tokenizer, nullptr), static_cast<int32_t>(Code::bad_model));
  EXPECT_EQ(tokenizer, nullptr);
  EXPECT_EQ(plait_text_create_fast({}, &files, {1 << 20, 1000}, &tokenizer, nullptr), static_cast<int32_t>(Code::bad_model));
}

}  // namespace
}  // namespace plait::text_test

// Whatever the bytes in the tokenizer's cache, it loads and gives text for any id, or throws plait::Error. The cache has
// a checksum, which is no protection from those who forge it: it is put right here, so that the tables are reached.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "core/base/mapped_file.h"
#include "core/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

const std::string& tokenizer_json() {
  static const std::string text =
      plait::read_text_file(PLAIT_FIXTURES "/gemma3-standard23/tokenizer.json");
  return text;
}

constexpr uint64_t multiply = 0x9E3779B97F4A7C15, finish = 0xD6E8FEB86659FD93;

uint64_t step(uint64_t state, uint64_t word) { return std::rotl((state ^ word) * multiply, 29); }

/// core/text/rust/src/hash.rs
uint64_t hash_of(std::string_view bytes) {
  uint64_t state = bytes.size() * multiply, lanes[] = {1, 2, 3, 4};
  auto word = [&](size_t count) {
    uint64_t out = 0;
    std::memcpy(&out, bytes.data(), count);
    bytes.remove_prefix(count);
    return out;
  };
  if (bytes.size() >= 32) {
    while (bytes.size() >= 32)
      for (uint64_t& lane : lanes) lane = step(lane, word(8));
    for (uint64_t lane : lanes) state = step(state, lane);
  }
  while (!bytes.empty()) state = step(state, word(std::min<size_t>(bytes.size(), 8)));
  for (int round = 0; round < 2; ++round) state = (state ^ state >> 32) * finish;
  return state ^ state >> 32;
}

/// With the header's length and source and the checksum at the end as they have to be (fast_form.rs).
std::string sealed(std::string fast) {
  constexpr size_t length_at = 16, source_at = 24, header = 48;
  if (fast.size() < header + 8) return fast;
  auto put = [&](size_t at, uint64_t number) { std::memcpy(fast.data() + at, &number, sizeof number); };
  put(length_at, fast.size());
  put(source_at, hash_of(tokenizer_json()));
  put(source_at + 8, tokenizer_json().size());
  put(fast.size() - 8, hash_of(std::string_view(fast).substr(0, fast.size() - 8)));
  return fast;
}

}  // namespace

/// Throws where this file's idea of the checksum is not the library's: then nothing would be tested.
std::vector<std::string> plait::fuzz::seeds() {
  std::string fast = Tokenizer::from_bytes({tokenizer_json(), {}, {}, {}}).save_fast();
  Tokenizer::from_fast(sealed(fast), {tokenizer_json(), {}, {}, {}});
  return {fast};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string fast = sealed({reinterpret_cast<const char*>(data), size});
  std::optional<plait::Tokenizer> loaded;
  try {
    loaded = plait::Tokenizer::from_fast(fast, {tokenizer_json(), {}, {}, {}});
  } catch (const plait::Error& error) {
    plait::fuzz::check_error(error);
    return 0;
  }
  ++plait::fuzz::accepted;
  const plait::Tokenizer& tokenizer = *loaded;
  try {
    auto ids = tokenizer.encode("the river <bos> \xC3\xA9 \xF0\x9F\x8C\x8A and\n\nthe sea", true);
    tokenizer.decode(ids);
    for (int32_t id = 0; id < std::min(tokenizer.vocab_size(), 600); ++id) tokenizer.decode(std::span(&id, 1));
  } catch (const plait::Error& error) {
    // Hugging Face's code panics over some pipelines, for example a template that names an unknown token: a fault that is
    // caught, and which no file of theirs has.
    if (error.message().empty()) std::abort();
  }
  return 0;
}

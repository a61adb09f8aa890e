#include "core/train/data/sample_order.h"

#include <charconv>
#include <numeric>
#include <utility>

#include "core/base/counter_random.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

constexpr std::string_view keys[] = {"epoch", "position", "seed", "samples", "digest"};

/// "epoch=1 position=20 ..." as numbers in the order of `keys`.
std::vector<uint64_t> parse_state(std::string_view state) {
  const Error bad(Code::invalid_argument, cat("no place in training data: ", quote(state)));
  std::vector<uint64_t> out;
  const std::vector<std::string> words = split(state, ' ');
  if (words.size() != std::size(keys)) throw bad;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string start = cat(keys[i], "=");
    const char* const end = words[i].data() + words[i].size();
    if (!words[i].starts_with(start)) throw bad;
    auto read = std::from_chars(words[i].data() + start.size(), end, out.emplace_back());
    if (read.ec != std::errc() || read.ptr != end) throw bad;
  }
  return out;
}

}  // namespace

SampleOrder::SampleOrder(int64_t samples, uint64_t seed, uint32_t digest)
    : samples_(samples), seed_(seed), digest_(digest) {
  if (samples < 1) throw Error(Code::invalid_argument, "there are no samples to train on");
  shuffle();
}

std::vector<int64_t> SampleOrder::next(int64_t count) {
  std::vector<int64_t> out;
  while (static_cast<int64_t>(out.size()) < count) {
    out.push_back(order_[static_cast<size_t>(position_)]);
    if (++position_ == samples_) {
      ++epoch_;
      position_ = 0;
      shuffle();
    }
  }
  return out;
}

std::string SampleOrder::state() const {
  return cat("epoch=", epoch_, " position=", position_, " seed=", seed_, " samples=", samples_, " digest=", digest_);
}

void SampleOrder::resume(std::string_view state) {
  const std::vector<uint64_t> numbers = parse_state(state);
  const auto samples = static_cast<uint64_t>(samples_);
  if (numbers[3] != samples || numbers[4] != digest_ || numbers[0] >> 32 || numbers[1] >= samples)
    throw Error(Code::invalid_argument,
                cat("the run was trained on other data: it had ", numbers[3], " samples (digest ", numbers[4],
                    "), these are ", samples_, " (digest ", digest_, ")"),
                "resume with the same data, seq and tokenizer, or begin a new run from its weights");
  epoch_ = static_cast<int64_t>(numbers[0]);
  position_ = static_cast<int64_t>(numbers[1]);
  seed_ = numbers[2];
  shuffle();
}

/// Fisher-Yates shuffle with random numbers that depend only on seed, epoch and index.
void SampleOrder::shuffle() {
  order_.resize(static_cast<size_t>(samples_));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  for (size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1],
              order_[counter_below(RandomUse::sample_order, seed_, static_cast<uint32_t>(epoch_), i, i)]);
}

}  // namespace plait

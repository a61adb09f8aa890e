#include "core/train/data/packing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// The samples of each of `count` rows, `order` being from long to short; nullopt if they do not fit.
std::optional<std::vector<std::vector<int64_t>>> spread(std::span<const int64_t> lengths,
                                                        const std::vector<int64_t>& order, int64_t row_tokens,
                                                        size_t count) {
  using Filled = std::pair<int64_t, size_t>;  // tokens, row
  std::priority_queue<Filled, std::vector<Filled>, std::greater<>> emptiest;
  for (size_t row = 0; row < count; ++row) emptiest.emplace(0, row);
  std::vector<std::vector<int64_t>> out(count);
  for (int64_t number : order) {
    const auto [tokens, row] = emptiest.top();
    const int64_t length = lengths[static_cast<size_t>(number)];
    if (tokens + length > row_tokens) return std::nullopt;
    emptiest.pop();
    emptiest.emplace(tokens + length, row);
    out[row].push_back(number);
  }
  return out;
}

void check_matrix(const TensorView& view, const char* what) {
  if ((view.dtype == DType::i32 || view.dtype == DType::i64) && view.shape.rank() == 2 && view.elements() > 0) return;
  throw Error(Code::invalid_argument, cat(what, " are ", dtype_name(view.dtype), view.shape.text(),
                                          ", expected i32 or i64 [documents, tokens]"));
}

/// An id or label; one beyond 32 bits becomes one that is in no vocabulary.
int32_t number_at(const TensorView& view, int64_t index) {
  if (view.dtype == DType::i32) return view.as<int32_t>()[index];
  constexpr auto most = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp<int64_t>(view.as<int64_t>()[index], -1, most));
}

}  // namespace

RowPlan plan_rows(std::span<const int64_t> lengths, int64_t row_tokens, int64_t ranks, int64_t at_least) {
  if (ranks < 1) throw Error(Code::invalid_argument, cat("rows for ", ranks, " data ranks"));
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  if (!order.empty() && lengths[static_cast<size_t>(order[0])] > row_tokens)
    throw Error(Code::invalid_argument,
                cat("a sample has ", lengths[static_cast<size_t>(order[0])], " tokens, a row at most ", row_tokens));
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t capacity = std::max<int64_t>(row_tokens * ranks, 1);
  const auto count = static_cast<int64_t>(lengths.size());
  const int64_t wanted = std::min(at_least, (count + ranks - 1) / ranks);
  for (int64_t micro_batches = std::max<int64_t>({(total + capacity - 1) / capacity, wanted, 1});; ++micro_batches) {
    auto rows = spread(lengths, order, row_tokens, static_cast<size_t>(micro_batches * ranks));
    if (!rows) continue;
    RowPlan out(static_cast<size_t>(micro_batches));
    for (size_t row = 0; row < rows->size(); ++row)
      out[row / static_cast<size_t>(ranks)].push_back(std::move((*rows)[row]));
    return out;
  }
}

PackedRow fill_row(std::span<const TrainingSample> samples, std::span<const int64_t> numbers) {
  PackedRow out;
  int32_t segment = 0;
  for (int64_t number : numbers) {
    const TrainingSample& sample = samples[static_cast<size_t>(number)];
    for (size_t i = 0; i + 1 < sample.ids.size(); ++i) {
      out.ids.push_back(sample.ids[i]);
      out.positions.push_back(static_cast<int32_t>(i));
      out.segments.push_back(segment);
      out.samples.push_back(static_cast<int32_t>(number));
      out.labels.push_back(sample.label(i));
    }
    ++segment;
  }
  return out;
}

void pad_row(PackedRow& row, int64_t tokens) {
  const auto size = std::max(static_cast<size_t>(tokens), row.ids.size());
  row.ids.resize(size, 0);
  row.positions.resize(size, 0);
  row.segments.resize(size, -1);
  row.samples.resize(size, -1);
  row.labels.resize(size, -1);
}

Places places_of(const PackedRow& row, int64_t prefix) {
  Places out;
  auto add = [&](size_t token, int64_t of_prefix, bool is_prefix) {
    out.tokens.push_back(static_cast<int32_t>(token));
    out.prefixes.push_back(static_cast<int32_t>(of_prefix));
    out.is_prefix.push_back(is_prefix);
    out.segments.push_back(row.segments[token]);
  };
  for (size_t i = 0; i < row.segments.size(); ++i) {
    const bool begins = row.segments[i] >= 0 && (i == 0 || row.segments[i] != row.segments[i - 1]);
    for (int64_t k = 0; begins && k < prefix; ++k) add(i, k, true);
    out.of_tokens.push_back(static_cast<int32_t>(out.tokens.size()));
    add(i, 0, false);
  }
  return out;
}

void Places::pad(size_t count) {
  tokens.resize(std::max(count, tokens.size()), 0);
  prefixes.resize(tokens.size(), 0);
  is_prefix.resize(tokens.size(), 0);
  segments.resize(tokens.size(), -1);
}

PackedStep pack_step(std::span<const TrainingSample> samples, int64_t row_tokens, int64_t ranks, int64_t at_least) {
  std::vector<int64_t> lengths;
  PackedStep out;
  for (const TrainingSample& sample : samples) {
    lengths.push_back(sample.inputs());
    out.tokens += sample.inputs();
    out.targets += sample.targets();
  }
  for (const auto& micro_batch : plan_rows(lengths, row_tokens, ranks, at_least)) {
    auto& rows = out.rows.emplace_back();
    for (const auto& numbers : micro_batch) rows.push_back(fill_row(samples, numbers));
  }
  return out;
}

PackedStep pack_documents(const TensorView& ids, const TensorView* labels, int64_t row_tokens, int64_t ranks,
                          int64_t at_least) {
  check_matrix(ids, "ids");
  const int64_t documents = ids.shape[0], length = ids.shape[1];
  if (labels) check_matrix(*labels, "labels");
  if (labels && labels->shape != ids.shape)
    throw Error(Code::invalid_argument,
                cat("the labels are ", labels->shape.text(), ", expected as many as ids: ", ids.shape.text()));
  if (length > row_tokens)
    throw Error(Code::invalid_argument,
                cat("the documents have ", length, " tokens, a row has place for ", row_tokens), "plan larger rows");
  const int64_t rows_wanted = ranks * std::min(std::max<int64_t>(at_least, 1), (documents + ranks - 1) / ranks);
  const int64_t of_row = std::min(row_tokens / length, (documents + rows_wanted - 1) / rows_wanted);
  PackedStep out;
  for (int64_t next = 0; next < documents;) {
    auto& rows = out.rows.emplace_back(static_cast<size_t>(ranks));
    for (PackedRow& row : rows)
      for (int64_t k = 0; k < of_row && next < documents; ++k, ++next)
        for (int64_t i = 0; i < length; ++i) {
          const int64_t at = next * length + i;
          row.ids.push_back(number_at(ids, at));
          row.positions.push_back(static_cast<int32_t>(i));
          row.segments.push_back(static_cast<int32_t>(k));
          row.samples.push_back(static_cast<int32_t>(next));
          row.labels.push_back(labels ? number_at(*labels, at) : i + 1 < length ? number_at(ids, at + 1) : -1);
          out.targets += row.labels.back() >= 0;
        }
  }
  out.tokens = documents * length;
  return out;
}

}  // namespace plait

#pragma once
// How a data set is put together. For dataset.cpp and dataset_reader.cpp.
#include "core/train/data/dataset.h"
#include "core/train/data/document_encoder.h"

namespace plait {

/// A sample's ids in the list of all.
struct Piece {
  int64_t begin = 0, length = 0;
  int64_t place = 0;  ///< the line, row, or token of the stream that it begins at, from 1 on
};

struct Dataset::State {
  std::string unit;                    ///< what a Piece's place counts: "line"
  std::string file;                    ///< "": documents that are in memory
  std::shared_ptr<const Blob> mapped;  ///< int32 ids of a file; else `own` has them
  std::vector<int32_t> own;
  std::vector<uint8_t> counted;  ///< empty while everything counts
  std::span<const int32_t> ids;
  std::vector<Piece> pieces;
  std::vector<std::string> notes;
  int64_t inputs = 0, targets = 0;
  uint32_t digest = 0;
};

/// Collects documents in order. `options` outlive it. Everything throws Error(invalid_argument) without the file's name.
class DatasetBuilder {
 public:
  /// `unit` is what places count: "line"; of a `file`, if there is one.
  DatasetBuilder(const DatasetOptions& options, std::string unit, std::string file = "");

  void add(const Document& document, int64_t place);
  /// The next part of the one stream.
  void extend(const Document& part);
  void end_stream();
  /// What was added so far is this share of the whole: makes room for the rest, so that lists need not grow by copies.
  void expect(double share);
  /// Ids of a file: [n] is a stream, the rows of [rows, s] are documents. Throws Error(unsupported) for other ranks.
  void add_array(const Tensor& array);
  void count_conversation(bool found) { ++(found ? found_ : whole_); }

  Dataset finish();

 private:
  int64_t append(const Document& document, std::string_view where);
  void take_ids(const Tensor& array);
  void check_ids(std::span<const int32_t> ids, std::string_view where) const;
  void check_length(int64_t length, int64_t place) const;
  void cut(int64_t begin, int64_t length, int64_t place, bool stream);
  std::string named(int64_t place) const;

  const DatasetOptions& options_;
  std::shared_ptr<Dataset::State> state_;
  int64_t empty_ = 0, found_ = 0, whole_ = 0;  ///< pieces without a target; conversations
};

}  // namespace plait

#pragma once
// Builds data sets. Internal to dataset_builder.cpp and dataset_reader.cpp.
#include <set>
#include <string>

#include "core/train/data/dataset.h"
#include "core/train/data/document_encoder.h"

namespace plait {

/// A sample's range in the list of all ids.
struct Piece {
  int64_t begin = 0, length = 0;
  int64_t place = 0;  ///< line, row, or token of the stream where it begins, from 1
};

struct Dataset::State {
  std::string unit;                    ///< unit of Piece::place: "line"
  std::string file;                    ///< "": documents in memory
  std::shared_ptr<const Blob> mapped;  ///< int32 ids of a file; otherwise they are in `own`
  std::vector<int32_t> own;
  std::vector<uint8_t> counted;  ///< empty while everything counts
  std::span<const int32_t> ids;
  std::vector<Piece> pieces;
  std::vector<std::string> notes;
  int64_t inputs = 0, targets = 0;
  uint32_t digest = 0;
};

/// Collects documents in order. `options` must outlive it. Throws Error(invalid_argument) without the file's name.
class DatasetBuilder {
 public:
  /// `unit` is the unit of places: "line"; `file` is empty for documents in memory.
  DatasetBuilder(const DatasetOptions& options, std::string unit, std::string file = "");

  void add(const Document& document, int64_t place);
  /// Appends a part of the stream.
  void extend(const Document& part);
  void end_stream();
  /// `share`: the fraction added so far; reserves memory for the rest.
  void expect(double share);
  /// Ids of a file: [n] is a stream, [rows, s] has one document per row. Throws Error(unsupported) for other ranks.
  void add_array(const Tensor& array);
  void count_conversation(const ChatNotes& notes);

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
  std::set<std::string> unknown_;              ///< members of messages without an effect
};

}  // namespace plait

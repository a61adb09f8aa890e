#pragma once
// Published tables: rows of text with commas; "#" begins a comment, of which the last before the rows names the columns.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace plait::test {

struct TableRow {
  std::map<std::string, std::string> cells;
  std::string text(const std::string& column) const { return cells.at(column); }
  double number(const std::string& column) const {
    double out = 0;
    if (!parse_double(cells.at(column), out)) throw Error(Code::invalid_argument, "no number in column " + column);
    return out;
  }
  int64_t integer(const std::string& column) const { return static_cast<int64_t>(number(column)); }
};

inline std::vector<TableRow> read_table(const std::string& name) {
  std::ifstream file(PLAIT_SOURCE_DIR "/tests/unit/plan/oracles/data/" + name);
  if (!file) throw Error(Code::not_found, name);
  std::vector<std::string> columns;
  std::vector<TableRow> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    if (line[0] == '#') {
      columns = split(trimmed(std::string_view(line).substr(1)), ',');
      continue;
    }
    const std::vector<std::string> cells = split(line, ',');
    if (cells.size() != columns.size()) throw Error(Code::invalid_argument, name + ": " + line);
    TableRow& row = out.emplace_back();
    for (size_t i = 0; i < cells.size(); ++i) row.cells[columns[i]] = cells[i];
  }
  return out;
}

/// For the picture of `./run bench plan --figures`: the numbers of a row, in the test's record.
inline void record_row(const std::string& name, double published, double predicted) {
  testing::Test::RecordProperty(name, cat(published, " ", predicted));
}

}  // namespace plait::test

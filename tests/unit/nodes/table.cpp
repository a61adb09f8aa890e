#include "tests/unit/nodes/table.h"

#include <set>
#include <sstream>

#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "tests/unit/nodes/cases.h"

namespace plait::test {
namespace {

constexpr std::string_view head =
    R"(# What Plait takes of ONNX

This page is written by the tests: `PLAIT_WRITE_DOCS=1 ./run test unit.nodes` makes it anew, and `unit.nodes` fails while it
is not what the schema (`core/ops`, above all `claims.cpp`) says.

A row claims an op of the standard's own domain: in every form that it has had from the first of its opsets on, up to opset
27, for operands of the types named, by operand. What is claimed gives what the standard says; what is not is refused, when
a model is read or compiled, by an error that names op, domain, opset and node. Values are tensors: strings, sequences,
optionals, maps and sparse tensors are not taken.

| word | types |
|---|---|
| floats | f16 bf16 f32 f64 |
| integers | i8 i16 i32 i64 u8 u16 u32 u64 |
| index | i32 i64 |
| numbers | floats, integers |
| small_floats | f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1 |
| small_integers | i4 u4 i2 u2 |
| any | all of these and bool |
| - | must be absent |

Operands beyond the last named take what that one takes; types behind an arrow are those of results that an attribute
chooses. A capital letter is a type variable, as the standard has them: "T:numbers" for the operands of an Add, "T:any, index,
T" for the data, indices and updates of a scatter; all operands of one letter have the same type. The column "cases" counts
the standard's node tests (onnx 1.22.0) that hold the op: those in which all is claimed, and those there are. The column
"gradient" says what passes back through the op in training: "yes" what its nodes compute, "zero" nothing, since its results do
not vary smoothly; nothing in front of an op without one can be trained.

)";

constexpr std::string_view total_mark = "node tests are within these claims";

/// A bar would end the cell.
std::string escaped(const std::string& text) {
  std::string out;
  for (char letter : text) out += letter == '|' ? std::string("\\|") : std::string(1, letter);
  return out;
}

std::string op_row(const OpSchema& row, const Count& count) {
  std::string doc =
      row.written_as.empty() || row.written_as == row.doc ? row.doc : cat(row.doc, "; read as ", row.written_as);
  return cat("| ", row.name, " | ", row.oldest, " | ", row.types, " | ", count.claimed, " of ", count.all, " | ",
             !row.gradient ? "" : row.gradient == no_gradient ? "zero" : "yes", " | ", escaped(doc), " |\n");
}

}  // namespace

CaseCounts count_cases(const CompileOptions& options) {
  CaseCounts out;
  for (const std::string& name : case_names()) {
    bool claimed = judge(name, options).graph.has_value();
    std::set<std::string> seen;
    for (const OpUse& use : ops_of(name))
      if (use.domain.empty()) seen.insert(use.op);
    for (const std::string& op : seen) {
      out.by_op[op].all += 1;
      out.by_op[op].claimed += claimed;
    }
    out.cases.all += 1;
    out.cases.claimed += claimed;
  }
  return out;
}

CaseCounts counts_in(const std::string& table) {
  CaseCounts out;
  std::istringstream lines(table);
  std::string line, of;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    size_t at = line.find(total_mark);
    if (at != std::string::npos) {
      std::string ops, are;
      words >> ops >> are >> are >> are >> out.cases.claimed >> of >> of >> out.cases.all;
    }
    std::vector<std::string> cells = split(line, '|');
    if (cells.size() < 6) continue;
    std::istringstream cell(cells[4]);
    Count count;
    if (cell >> count.claimed >> of >> count.all) out.by_op[std::string(trimmed(cells[1]))] = count;
  }
  return out;
}

std::string ops_table(const OpSet& ops, const CaseCounts& counts) {
  std::string rows;
  int claimed = 0;
  for (const auto& [name, row] : ops.all()) {
    if (row.oldest == 0) continue;
    auto found = counts.by_op.find(name);
    rows += op_row(row, found == counts.by_op.end() ? Count{} : found->second);
    ++claimed;
  }
  return cat(head, claimed, " ops are claimed. ", counts.cases.claimed, " of the ", counts.cases.all, " ", total_mark,
             ".\n\n| op | since | types | cases | gradient | what it does |\n|---|---|---|---|---|---|\n", rows);
}

}  // namespace plait::test

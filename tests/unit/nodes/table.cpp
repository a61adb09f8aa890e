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

The tests generate this page: `PLAIT_WRITE_DOCS=1 ./run test unit.nodes` rewrites it, and `unit.nodes` fails if it differs from
the schema (`core/ops`, mainly `claims.cpp`).

A row is a supported op of the standard's domains (ai.onnx without its name): in every form from its first opset ("since") up to
opset 28 (5 of ai.onnx.ml), for operands of the listed types, by operand. Supported forms give the standard's results; others are
rejected, when a model is read or compiled, by an error that names op, domain, opset and node. Where the standard leaves a choice
in ai.onnx.ml, results are those of ONNX Runtime. Values are tensors, sequences and optionals; an input or output of a session
that is a sequence or an optional is one array, a packed list (`core/base/packed_list.h`). Maps and sparse tensors are not
supported, nor is ImageDecoder. Random ops draw by counter: a run gives the same numbers as the last, each iteration of a loop others.

Strings are values of plain graphs on the processor; meshes, devices and training refuse them. A number becomes the shortest string
that reads back as the same number ("NaN", "INF", "-INF"; a bool "True" or "False"). Lower and upper case are Unicode's, whatever
`locale` is. Patterns of RegexFullMatch are Rust's: RE2's syntax.

| word | types |
|---|---|
| floats | f16 bf16 f32 f64 |
| integers | i8 i16 i32 i64 u8 u16 u32 u64 |
| index | i32 i64 |
| numbers | floats, integers |
| small_floats | f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1 |
| small_integers | i4 u4 i2 u2 |
| any | all of these and bool |
| values | any, string |
| - | must be absent |

Operands after the last listed one have its types; types after an arrow are those of results that an attribute chooses. A capital
letter is a type variable, as in the standard: "T:numbers" for the operands of an Add, "T:any, index, T" for the data, indices and
updates of a scatter; all operands with one letter have the same type. The column "cases" counts the standard's node tests (onnx
1.23.2) with the op: fully supported ones, and all. The column "gradient": "yes": differentiable; "zero": no gradient, since
results are piecewise constant; weights before an op without an entry cannot be trained. An op that is read as others has the
gradients of these.

)";

constexpr std::string_view total_mark = "node tests are within these claims";

std::string full_name(const OpUse& use) { return use.domain.empty() ? use.op : cat(use.domain, ".", use.op); }

/// What a refused case needs.
std::string reason_of(const std::string& name, const OpSet& ops) {
  for (const OpUse& use : ops_of(name)) {
    const auto row = ops.all().find(full_name(use));
    if (row == ops.all().end() || (use.domain.empty() && use.opset < row->second.oldest))
      return full_name(use);
  }
  return "strings";
}

std::string refused_table(const std::map<std::string, int>& refused) {
  std::string out;
  for (const auto& [reason, count] : refused) out += cat("| ", reason, " | ", count, " |\n");
  return out.empty() ? out : cat("| refused cases need | cases |\n|---|---|\n", out, "\n");
}

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
             !row.gradient                 ? ""
             : row.gradient == no_gradient ? "zero"
                                           : "yes",
             " | ", escaped(doc), " |\n");
}

}  // namespace

CaseCounts count_cases(const CompileOptions& options) {
  CaseCounts out;
  for (const std::string& name : case_names()) {
    bool claimed = judge(name, options).graph.has_value();
    std::set<std::string> seen;
    for (const OpUse& use : ops_of(name)) seen.insert(full_name(use));
    for (const std::string& op : seen) {
      out.by_op[op].all += 1;
      out.by_op[op].claimed += claimed;
    }
    out.cases.all += 1;
    out.cases.claimed += claimed;
    if (!claimed) ++out.refused[reason_of(name, options.ops)];
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
    if (int64_t refused = 0; cells.size() == 4 && parse_int(trimmed(cells[2]), refused))
      out.refused[std::string(trimmed(cells[1]))] = static_cast<int>(refused);
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
             ".\n\n", refused_table(counts.refused),
             "| op | since | types | cases | gradient | what it does |\n|---|---|---|---|---|---|\n", rows, microsoft_table(ops));
}

}  // namespace plait::test

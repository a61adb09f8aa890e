#pragma once
// Symbolic sizes. A Dim is a polynomial in symbols with integer coefficients in normal form: it covers the shape
// arithmetic of exported graphs (sums, products, exact quotients), with decidable equality.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

using SymbolId = int32_t;

/// A size known only at run time. Costs use `typical`; memory is planned for `bound` (0: no bound); every value is a
/// multiple of `multiple_of`.
struct Symbol {
  std::string name;  ///< any text: exporters write "past_sequence_length + sequence_length"
  int64_t typical = 0;
  int64_t bound = 0;
  int64_t multiple_of = 1;
};

/// The symbols of a graph, by number. Names are unique.
class SymbolTable {
 public:
  /// The symbol of that name, created if missing.
  SymbolId intern(std::string_view name);
  /// A new symbol whose name starts with `stem`.
  SymbolId fresh(std::string_view stem);
  std::optional<SymbolId> find(std::string_view name) const;
  Symbol& operator[](SymbolId id) { return symbols_[static_cast<size_t>(id)]; }
  const Symbol& operator[](SymbolId id) const { return symbols_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(symbols_.size()); }

 private:
  std::vector<Symbol> symbols_;
};

/// Cheap to copy: most are numbers, and the others share their terms.
class Dim {
 public:
  Dim() = default;
  Dim(int64_t constant) : constant_(constant) {}  // NOLINT: a number is a Dim
  static Dim symbol(SymbolId id);

  bool is_constant() const { return !terms_; }
  /// The value of a constant Dim.
  int64_t constant() const;
  /// The symbol, if the Dim is a single symbol.
  std::optional<SymbolId> single_symbol() const;
  /// The symbol and its factor, if the Dim is a multiple of a symbol, as 4*t.
  struct Multiple {
    int64_t factor;
    SymbolId symbol;
  };
  std::optional<Multiple> single_multiple() const;
  /// All symbols that occur, each once, ascending.
  std::vector<SymbolId> symbols() const;

  /// Evaluates with `values[id]` for symbol id; the span must contain every symbol that occurs. Saturates on
  /// overflow.
  int64_t evaluate(std::span<const int64_t> values) const;
  /// With symbol `id` replaced.
  Dim substitute(SymbolId id, const Dim& by) const;

  /// Limits against malicious files; real models have a few terms of a few symbols.
  static constexpr size_t max_terms = 1024, max_degree = 16;
  /// nullopt if the result exceeds `max_terms` terms or `max_degree` symbols in a term.
  std::optional<Dim> plus(const Dim& other) const;
  std::optional<Dim> times(const Dim& other) const;
  /// The same, throwing Error(unsupported) instead.
  Dim operator+(const Dim& other) const;
  Dim operator-(const Dim& other) const;
  Dim operator*(const Dim& other) const;
  /// The exact polynomial quotient, if any: (4*b*s) / (2*s) = 2*b.
  std::optional<Dim> divided(const Dim& by) const;

  bool operator==(const Dim& other) const;
  bool operator!=(const Dim& other) const { return !(*this == other); }

  struct Term {
    int64_t coefficient;
    std::vector<SymbolId> symbols;  ///< sorted, with repetition for powers; empty for the constant term
    bool operator==(const Term&) const = default;
  };
  /// Sorted by `symbols`, no zero coefficient.
  std::vector<Term> terms() const;

  /// "2*b*s + 1"; a symbol whose name is no identifier is quoted.
  std::string text(const SymbolTable& table) const;
  /// The inverse of `text`; interns symbols. Throws Error(invalid_argument).
  static Dim parse(std::string_view text, SymbolTable& table);

 private:
  /// Of terms as `terms` returns them.
  static Dim of(std::vector<Term> terms);
  size_t term_count() const { return terms_ ? terms_->size() : constant_ != 0; }
  size_t degree() const;  ///< the most symbols of a term
  Dim checked(std::optional<Dim> result, const char* what, const Dim& other) const;

  int64_t constant_ = 0;                            ///< of a constant
  std::shared_ptr<const std::vector<Term>> terms_;  ///< null: a constant
};

using Dims = std::vector<Dim>;

/// Product of all, 1 for none.
Dim product(std::span<const Dim> dims);
/// Whether the blocks of dim `dim` of a dense array are contiguous: only dims of size 1 precede it.
bool leads(std::span<const Dim> dims, int64_t dim);
/// "[b, 2*s, 64]"
std::string text(std::span<const Dim> dims, const SymbolTable& table);

}  // namespace plait

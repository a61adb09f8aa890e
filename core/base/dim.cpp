#include "core/base/dim.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

SymbolId SymbolTable::intern(std::string_view name) {
  if (auto found = find(name)) return *found;
  symbols_.push_back({std::string(name)});
  return static_cast<SymbolId>(symbols_.size() - 1);
}

SymbolId SymbolTable::fresh(std::string_view stem) {
  std::string name(stem);
  for (int n = 1; find(name); ++n) name = cat(stem, ".", n);
  return intern(name);
}

std::optional<SymbolId> SymbolTable::find(std::string_view name) const {
  for (size_t i = 0; i < symbols_.size(); ++i)
    if (symbols_[i].name == name) return static_cast<SymbolId>(i);
  return std::nullopt;
}

using Terms = std::vector<Dim::Term>;

static int64_t saturated(__int128 value) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  return value > most ? most : value < -most ? -most : static_cast<int64_t>(value);
}
static int64_t sum_of(int64_t a, int64_t b) { return saturated(static_cast<__int128>(a) + b); }
static int64_t product_of(int64_t a, int64_t b) { return saturated(static_cast<__int128>(a) * b); }

static void add(Terms& terms, Dim::Term term) {
  auto place = std::lower_bound(terms.begin(), terms.end(), term,
                                [](const Dim::Term& a, const Dim::Term& b) { return a.symbols < b.symbols; });
  if (place == terms.end() || place->symbols != term.symbols) {
    if (term.coefficient) terms.insert(place, std::move(term));
    return;
  }
  place->coefficient = sum_of(place->coefficient, term.coefficient);
  if (place->coefficient == 0) terms.erase(place);
}

Dim Dim::of(Terms terms) {
  if (terms.empty()) return {};
  if (terms.size() == 1 && terms[0].symbols.empty()) return terms[0].coefficient;
  Dim out;
  out.terms_ = std::make_shared<const Terms>(std::move(terms));
  return out;
}

Dim Dim::symbol(SymbolId id) { return of({{1, {id}}}); }

Terms Dim::terms() const {
  if (terms_) return *terms_;
  return constant_ ? Terms{{constant_, {}}} : Terms{};
}

int64_t Dim::constant() const {
  PLAIT_ASSERT(is_constant());
  return constant_;
}

std::optional<SymbolId> Dim::single_symbol() const {
  const std::optional<Multiple> out = single_multiple();
  return out && out->factor == 1 ? std::optional(out->symbol) : std::nullopt;
}

std::optional<Dim::Multiple> Dim::single_multiple() const {
  if (!terms_ || terms_->size() != 1) return std::nullopt;
  const Term& term = terms_->front();
  if (term.symbols.size() != 1 || term.coefficient < 1) return std::nullopt;
  return Multiple{term.coefficient, term.symbols[0]};
}

std::vector<SymbolId> Dim::symbols() const {
  std::vector<SymbolId> out;
  if (!terms_) return out;
  for (const Term& term : *terms_) out.insert(out.end(), term.symbols.begin(), term.symbols.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

int64_t Dim::evaluate(std::span<const int64_t> values) const {
  if (!terms_) return constant_;
  int64_t sum = 0;
  for (const Term& term : *terms_) {
    int64_t product = term.coefficient;
    for (SymbolId id : term.symbols) product = product_of(product, values[static_cast<size_t>(id)]);
    sum = sum_of(sum, product);
  }
  return sum;
}

Dim Dim::substitute(SymbolId id, const Dim& by) const {
  if (!terms_) return *this;
  Dim out;
  for (const Term& term : *terms_) {
    Dim part(term.coefficient);
    for (SymbolId symbol : term.symbols) part = part * (symbol == id ? by : Dim::symbol(symbol));
    out = out + part;
  }
  return out;
}

std::optional<Dim> Dim::plus(const Dim& other) const {
  if (!terms_ && !other.terms_) return sum_of(constant_, other.constant_);
  if (term_count() + other.term_count() > max_terms) return std::nullopt;
  Terms out = terms();
  for (Term& term : other.terms()) add(out, std::move(term));
  return of(std::move(out));
}

size_t Dim::degree() const {
  size_t out = 0;
  if (terms_)
    for (const Term& term : *terms_) out = std::max(out, term.symbols.size());
  return out;
}

std::optional<Dim> Dim::times(const Dim& other) const {
  if (!terms_ && !other.terms_) return product_of(constant_, other.constant_);
  if (*this == Dim(1)) return other;
  if (other == Dim(1)) return *this;
  if (term_count() * other.term_count() > max_terms || degree() + other.degree() > max_degree) return std::nullopt;
  Terms out;
  for (const Term& a : terms())
    for (const Term& b : other.terms()) {
      Term term{product_of(a.coefficient, b.coefficient), a.symbols};
      term.symbols.insert(term.symbols.end(), b.symbols.begin(), b.symbols.end());
      std::sort(term.symbols.begin(), term.symbols.end());
      add(out, std::move(term));
    }
  return of(std::move(out));
}

Dim Dim::checked(std::optional<Dim> result, const char* what, const Dim& other) const {
  if (result) return std::move(*result);
  throw Error(Code::unsupported,
              cat("a size is the ", what, " of polynomials of ", term_count(), " and ", other.term_count(),
                  " terms, of degree ", degree(), " and ", other.degree()),
              cat("export the model with sizes of at most ", max_terms, " terms of ", max_degree, " symbols"));
}

Dim Dim::operator+(const Dim& other) const { return checked(plus(other), "sum", other); }

Dim Dim::operator-(const Dim& other) const { return *this + other * Dim(-1); }

Dim Dim::operator*(const Dim& other) const { return checked(times(other), "product", other); }

std::optional<Dim> Dim::divided(const Dim& by) const {
  if (by == Dim(0)) return std::nullopt;
  if (*this == by) return Dim(1);
  const Terms divisors = by.terms();
  if (divisors.size() > 1) {
    // Long division by the leading terms; exact or nothing. Graded order (degree first, then symbols), because only an
    // order that multiplication keeps makes the leading term of a product the product of the leading terms.
    auto leading = [](const Dim& dim) {
      const Terms terms = dim.terms();
      return of({*std::max_element(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
        return std::pair(a.symbols.size(), a.symbols) < std::pair(b.symbols.size(), b.symbols);
      })});
    };
    Dim rest = *this, quotient;
    const Dim lead = leading(by);
    for (int step = 0; rest != Dim(0); ++step) {
      auto part = leading(rest).divided(lead);
      if (!part || step > 64) return std::nullopt;
      const std::optional<Dim> known = quotient.plus(*part), covered = part->times(Dim(-1))->times(by);
      std::optional<Dim> left = covered ? rest.plus(*covered) : std::nullopt;
      if (!known || !left) return std::nullopt;
      quotient = *known;
      rest = std::move(*left);
    }
    return quotient;
  }
  const Term& divisor = divisors[0];
  Terms out;
  for (const Term& term : terms()) {
    if (term.coefficient < -std::numeric_limits<int64_t>::max() || term.coefficient % divisor.coefficient)
      return std::nullopt;
    if (!std::includes(term.symbols.begin(), term.symbols.end(), divisor.symbols.begin(), divisor.symbols.end()))
      return std::nullopt;
    Term part{term.coefficient / divisor.coefficient, {}};
    std::set_difference(term.symbols.begin(), term.symbols.end(), divisor.symbols.begin(), divisor.symbols.end(),
                        std::back_inserter(part.symbols));
    add(out, std::move(part));
  }
  return of(std::move(out));
}

bool Dim::operator==(const Dim& other) const {
  if (!terms_ || !other.terms_) return !terms_ && !other.terms_ && constant_ == other.constant_;
  return terms_ == other.terms_ || *terms_ == *other.terms_;
}

static bool is_identifier(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; });
}

std::string Dim::text(const SymbolTable& table) const {
  if (is_constant()) return cat(constant());
  // By names, the constant term last: numbers of symbols follow from the order in which a text names them, so that a text
  // in the order of numbers would not read back to itself.
  std::vector<std::pair<std::vector<std::string>, int64_t>> terms;
  int64_t rest = 0;
  for (const Term& term : *terms_) {
    std::vector<std::string> names;
    for (SymbolId id : term.symbols) names.push_back(table[id].name);
    std::sort(names.begin(), names.end());
    if (names.empty()) rest = term.coefficient;
    else terms.emplace_back(std::move(names), term.coefficient);
  }
  std::sort(terms.begin(), terms.end());
  std::string out;
  for (const auto& [names, coefficient] : terms) {
    if (!out.empty()) out += " + ";
    if (coefficient != 1) out += cat(coefficient, "*");
    for (size_t i = 0; i < names.size(); ++i)
      out += cat(i ? "*" : "", is_identifier(names[i]) ? names[i] : quote(names[i], std::string::npos));
  }
  return rest ? cat(out, " + ", rest) : out;
}

namespace {

/// A cursor over "2*b*s + -1*\"odd name\" + 1".
struct DimReader {
  std::string_view text;
  SymbolTable& table;
  size_t at = 0;

  void blanks() {
    while (at < text.size() && text[at] == ' ') ++at;
  }
  bool take(char c) {
    blanks();
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  }
  Error bad() const { return Error(Code::invalid_argument, cat("not a size: ", quote(text))); }

  Dim factor() {
    blanks();
    if (at >= text.size()) throw bad();
    if (text[at] == '"') {
      size_t end = at + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      if (end >= text.size()) throw bad();
      std::string name = unquote(text.substr(at, end + 1 - at));
      at = end + 1;
      return Dim::symbol(table.intern(name));
    }
    size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_' ||
                                 text[end] == '.' || (text[end] == '-' && end == at)))
      ++end;
    std::string_view word = text.substr(at, end - at);
    at = end;
    int64_t number;
    if (parse_int(word, number)) return Dim(number);
    if (!is_identifier(word)) throw bad();
    return Dim::symbol(table.intern(word));
  }
  Dim sum() {
    Dim total;
    do {
      Dim term = factor();
      while (take('*')) term = term * factor();
      total = total + term;
    } while (take('+'));
    blanks();
    if (at != text.size()) throw bad();
    return total;
  }
};

}  // namespace

Dim Dim::parse(std::string_view text, SymbolTable& table) { return DimReader{text, table}.sum(); }

Dim product(std::span<const Dim> dims) {
  Dim out(1);
  for (const Dim& dim : dims) out = out * dim;
  return out;
}

bool leads(std::span<const Dim> dims, int64_t dim) {
  return product(dims.first(std::min(dims.size(), static_cast<size_t>(dim)))) == Dim(1);
}

std::string text(std::span<const Dim> dims, const SymbolTable& table) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) out += ", ";
    out += dims[i].text(table);
  }
  return out + "]";
}

}  // namespace plait

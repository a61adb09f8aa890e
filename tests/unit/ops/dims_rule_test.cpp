#include "core/graph/dims_rule.h"

#include "tests/unit/ops/ops_test.h"

namespace plait {
namespace {

using test::error_of;

// Every form that occurs in rules of known ops, each as `text` writes it.
const char* const rule_strings[] = {
    "*... -> ...", "... -> ...", "+..., +... -> ...", "*..., *... -> ...", "*..., ... -> ...", "..., ... -> ...",
    "..., +..., +... -> ...", "*b 1 h -> b s h", "*b s h -> @b @s @h", "t f, *t f -> t f",
    "*t f, t f, t f -> t f, t f", "t [h], [h] -> t [h], [h] {all}",
    "*b t @v -> b t v", "*b s h -> b s", "b s h -> b s {max}", "b s h -> b s {min}",
    "b h -> {sum}", "n v, n, v -> n {min}", "*b s (g r d) -> b s g r d", "*b s g r d -> b s (g r) d",
    "*b s h -> (b s) h", "*b (p w) h -> (p b) w h", "*b s g d -> b g s d", "*b h -> b 1 h",
    "+b [s] h, +b [t] h -> b [u] h", "+b h, +b h -> b 2 h", "*b [s] h -> b [z] h",
    "*t (g 3 d) -> t g d, t g d, t g d", "*b s g d -> b s (g r) d", "*@v h, b s -> b s h", "*b s h, b s -> @v h",
    "*b s @v, b s -> b s", "*b s, b s -> b s @v", "b s -> b s @v", "-> @s", "-> @q @k", "*[s] h, t -> t h",
    "*t h, t -> @s h", "b g q [k] -> b g q [k]", "*b g q [k], b g q [k] -> b g q [k]", "t [v] -> t [v]",
    "*b [s] h -> b [s] h", "b [v] -> b [k], b [k]", "t [h], *[h] -> t [h]", "*t [h], t [h], [h] -> t [h], [h]",
    "*b [s] c, *c [k] -> b [s] c", "*... h, *h f -> ... f", "*b s h, *b s f -> h f", "*b g q d, *b g k d -> b g q k",
    "*t h, *h (g r d) -> t g r d", "*t g r d, *(g r d) h -> t h", "*t h, *h z, *z f -> t f",
    "t [h], [h] f, *[h] f, *f o -> t o", "*t (k 16 2), n (k 16), *n k -> t n",
    "*t (z 2 16 2), n (z 2 16), n (z 2), n z -> t n", "*t n, n (k 16), *n k -> t (k 16 2)",
    "b @q g r [d], b [k] g [d], *b [k] g [e] -> b @q g r [e]",
    "b [t] g r [d], b [t] g [d], *b [t] g [e], b t -> b [t] g r [e]", "*t g [d], t -> t g [d]",
    "b t g r [d], [p] [c] g [d], *[p] [c] g [e], b t, b t, [n] [m] -> b t g r [e]",
    "[p] [c] g d, [b] [t] g d, [b] [t] -> [p] [c] g d", "*[p] c g d, [n], [n] -> [p] c g d",
    "t [h], t k, *t k, @e [h] f, *@e [h] f, *@e f [h] -> t [h]", "*b [t] h, b [t] [k] -> @e b c~ h",
    "*@e b c~ h, b [t] [k] -> b [t] h", "*e b c~ h, *e h f -> e b c~ f", "*e b c~ h, *e b c~ f -> e h f",
    "*@e b c~ h, b [t] [k], *b [t] [k] -> b [t] h", "*b t [e], b t k -> b t k", "*b t k, b t k -> b t @e",
    "n, n, n, n -> n, n, n", "+b t v, +b t -> b t v", "..., , -> ...", "b h -> b h {=}",
};

TEST(DimsRule, TextsReadBack) {
  for (const char* rule : rule_strings) {
    EXPECT_EQ(text(parse_dims_rule(rule)), rule);
    EXPECT_EQ(parse_dims_rule(text(parse_dims_rule(rule))), parse_dims_rule(rule));
  }
}

TEST(DimsRule, FlagsAndSizes) {
  DimsRule rule = parse_dims_rule("  *@v h ,[k] 2 c~->(v 3 h) {max}");
  EXPECT_EQ(text(rule), "*@v h, [k] 2 c~ -> (v 3 h) {max}");
  EXPECT_EQ(rule.operands[0].linear, Linearity::alone);
  EXPECT_TRUE(rule.operands[0].dims[0].factors[0].offset);
  EXPECT_TRUE(rule.operands[1].dims[0].factors[0].whole);
  EXPECT_EQ(rule.operands[1].dims[1].factors[0].fixed, 2);
  EXPECT_TRUE(rule.operands[1].dims[2].factors[0].jagged);
  EXPECT_EQ(rule.results[0].pending, PendingKind::max);
  EXPECT_EQ(parse_dims_rule("-> {sum}").results[0].dims.size(), 0u);

  std::vector<FactorUse> uses = factors(parse_dims_rule("*@v h, b s [k] -> b s h"));
  ASSERT_EQ(uses.size(), 5u);
  EXPECT_EQ(uses[0].factor.name, "v");
  EXPECT_TRUE(uses[0].factor.offset && uses[0].contracted());
  EXPECT_TRUE(uses[1].in_operands && uses[1].in_results);
  EXPECT_TRUE(uses[4].factor.whole);
}

TEST(DimsRule, ErrorsNameThePlace) {
  EXPECT_NE(error_of([] { parse_dims_rule("b [s h -> b"); }).find("position 5: expected \"]\""), std::string::npos);
  EXPECT_NE(error_of([] { parse_dims_rule("b s h"); }).find("expected \"->\", got the end"), std::string::npos);
  EXPECT_NE(error_of([] { parse_dims_rule("b -> b {mean}"); }).find("sum, max, min, all or ="), std::string::npos);
  for (const char* bad : {"b ( -> b", "[3] -> b", "@2 -> b", "0 -> b", "b; -> b", "b -> b c -> d", "@b~ -> b", ""})
    EXPECT_NE(error_of([&] { parse_dims_rule(bad); }), "") << bad;
}

std::string expanded(const char* rule, const std::vector<std::string>& operands) {
  SymbolTable symbols;
  std::vector<Dims> dims;
  for (const std::string& operand : operands) dims.push_back(test::parse_dims(operand, symbols));
  DimsList list;
  for (const Dims& one : dims) list.push_back(&one);
  return text(expand(parse_dims_rule(rule), list));
}

TEST(DimsRule, EllipsisBroadcasts) {
  EXPECT_EQ(expanded("+..., +... -> ...", {"p q 64", "64"}), "+b s t, +t -> b s t");
  EXPECT_EQ(expanded("+..., +... -> ...", {"p 1 q r", "1 1 q r"}), "+b 1 t u, +1 1 t u -> b 1 t u");
  EXPECT_EQ(expanded("+..., +... -> ...", {"p 1", "1 q"}), "+b 1, +1 s -> b s");
  EXPECT_EQ(expanded("... -> ...", {""}), "-> {sum}");
  EXPECT_EQ(expanded("*... h, *h f -> ... f", {"p q 8", "8 9"}), "*b s h, *h f -> b s f");
  EXPECT_EQ(expanded("*... h, *h b -> ... b", {"p q 8", "8 9"}), "*s t h, *h b -> s t b");  // names do not clash
  EXPECT_EQ(expanded("*... q k, *... k n -> ... q n", {"p 4 5", "5 6"}), "*b q k, *k n -> b q n");
  EXPECT_EQ(expanded("*b [s] ..., b n -> b n ...", {"p 7 3 4", "p 2"}), "*b [s] t u, b n -> b n t u");
}

TEST(DimsRule, RankTooSmall) {
  EXPECT_NE(error_of([] { expanded("... q k -> ... q", {"5"}); }).find("rank 1, expected at least 2"),
            std::string::npos);
}

struct Sizes {
  SymbolTable symbols;
  std::vector<Dims> dims, result_types;
  FactorSizes of(const char* rule, const std::vector<std::string>& operands,
                 const std::vector<std::string>& results = {}) {
    for (const std::string& one : operands) dims.push_back(test::parse_dims(one, symbols));
    for (const std::string& one : results) result_types.push_back(test::parse_dims(one, symbols));
    DimsList left, right;
    for (const Dims& one : dims) left.push_back(&one);
    for (const Dims& one : result_types) right.push_back(&one);
    return factor_sizes(parse_dims_rule(rule), left, right);
  }
  Dim dim(const char* text) { return Dim::parse(text, symbols); }
};

TEST(DimsRule, SizesOfFactors) {
  Sizes s;
  FactorSizes sizes = s.of("b t (g r) [d], [p] g [d] [c] -> b t (g r) [d]", {"b t 12 64", "p 4 64 16"});
  EXPECT_EQ(sizes.at("g"), Dim(4));
  EXPECT_EQ(sizes.at("r"), Dim(3));
  EXPECT_EQ(*result_dims(parse_dims_rule("b t (g r) [d] -> b t (g r) [d]"), sizes),
            (Dims{s.dim("b"), s.dim("t"), Dim(12), Dim(64)}));
}

TEST(DimsRule, SizesFromResultsAndFixed) {
  Sizes s;
  FactorSizes sizes = s.of("*b s (g r d), n (k 16) -> b s g r d", {"b s 768", "n 64"}, {"b s 4 3 64"});
  EXPECT_EQ(sizes.at("g"), Dim(4));
  EXPECT_EQ(sizes.at("k"), Dim(4));
  EXPECT_EQ(sizes.at("d"), Dim(64));
}

TEST(DimsRule, ConstantsWinOverSymbols) {
  Sizes s;
  FactorSizes sizes = s.of("+b h, +b h -> b h", {"b h", "c 64"});
  EXPECT_EQ(sizes.at("h"), Dim(64));
  EXPECT_EQ(sizes.at("b"), s.dim("b"));  // the older symbol
  EXPECT_FALSE(result_dims(parse_dims_rule("b -> b z"), sizes).has_value());
}

TEST(DimsRule, Conflicts) {
  EXPECT_EQ(error_of([] { Sizes().of("*b k, *k n -> b n", {"b 4", "5 n"}); }),
            "input 1: factor k is 5, but 4 by input 0");
  EXPECT_EQ(error_of([] { Sizes().of("*b k -> b", {"b 4 5"}); }), "input 0 has rank 3, expected 2");
  EXPECT_NE(error_of([] { Sizes().of("n (k 16) -> n k", {"n 40"}); }).find("does not divide by factor 16"),
            std::string::npos);
  EXPECT_NE(error_of([] { Sizes().of("b 1 -> b", {"b 2"}); }), "");
  EXPECT_NE(error_of([] { Sizes().of("(a c), a, c -> a", {"13", "3", "4"}); }), "");
  EXPECT_NE(error_of([] { Sizes().of("(a c), a, c -> a", {"0", "3", "4"}); }), "");
  EXPECT_EQ(error_of([] { Sizes().of("(a c), a, c -> a", {"0", "3", "0"}); }), "");
}

TEST(DimsRule, Flops) {
  Sizes s;
  auto count = [&](const char* rule, const std::vector<std::string>& operands) {
    Sizes fresh;
    Dim out = flops(parse_dims_rule(rule), fresh.of(rule, operands));
    return out.text(fresh.symbols);
  };
  EXPECT_EQ(count("*b s h, *h f -> b s f", {"b s 8", "8 3"}), "48*b*s");
  EXPECT_EQ(count("b q g r [d], b [k] g [d], *b [k] g [e] -> b q g r [e]", {"1 10 2 3 4", "1 20 2 4", "1 20 2 5"}),
            cat(2 * 10 * 2 * 3 * 20 * (4 + 5)));
  EXPECT_EQ(count("... -> ...", {}), "1");
  EXPECT_EQ(count("+b h, +b h -> b h", {"b 4", "b 4"}), "4*b");
  EXPECT_EQ(count("+b [k], +b [k] -> b", {"b 4", "b 4"}), "b");  // added, not multiplied
  EXPECT_EQ(count("*@v h, b s -> b s h", {"1000 8", "b s"}), "8*b*s");  // reads rows: no products
  EXPECT_EQ(count("t [h], f [h], *f [h] -> t f", {"t 8", "5 8", "5 8"}), "160*t");
}

TEST(DimsRule, RuleOfANode) {
  Node node;
  node.op = "Sum";
  node.inputs = {0, 1, 2};
  node.outputs = {3};
  SymbolTable symbols;
  Type matrix{DType::f32, test::parse_dims("p 4", symbols)}, vector{DType::f32, test::parse_dims("4", symbols)};
  const OpSchema& sum = *test::all_ops().find("Sum");
  EXPECT_EQ(text(*rule_of(sum, node, {matrix, matrix, vector}, {Type{}})), "+b s, +b s, +s -> b s");
  EXPECT_FALSE(rule_of(sum, node, {matrix, Type{DType::f32, {}}, vector}, {Type{}}).has_value());  // unknown rank

  node.op = "Clip";
  node.inputs = {0, no_value, 2};
  Type scalar{DType::f32, Dims{}};
  EXPECT_EQ(text(*rule_of(*test::all_ops().find("Clip"), node, {matrix, Type{}, scalar}, {Type{}})),
            "b s, , -> b s");
}

}  // namespace
}  // namespace plait

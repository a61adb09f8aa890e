// The text form of a graph, for dumps, golden files and test cases. One statement per line:
//
//   graph "name"
//   input %0 "input_ids" : i64[b, s]
//   const %1 "w" : f32[2] = 1 2                     a computed constant, its elements written out
//   const %2 "model.w" : f32[64, 8] = file "model.w" : f32[8, 64] ; transpose 1 0
//   node "/mlp/MatMul" in "mlp" stage 0 : %3 : f32[b, s, 64] = MatMul(%0, %1) axis=1 perm=[0, 1] to="x"
//   body "then_branch" { ... }                      belongs to the node before it
//   output %3 "logits"
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/graph.h"

namespace plait {
namespace {

constexpr size_t whole = std::string::npos;

bool integral(DType dtype) { return is_integer(dtype) || dtype == DType::boolean; }

std::string elements_text(const Tensor& tensor) {
  std::string out;
  if (integral(tensor.dtype())) {
    for (int64_t value : to_ints(tensor.view())) out += cat(" ", value);
    return out;
  }
  Tensor wide = materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f64}}});
  for (int64_t i = 0; i < wide.elements(); ++i) out += cat(" ", wide.as<double>()[i]);
  return out;
}

bool writable(const Tensor& tensor) { return integral(tensor.dtype()) || is_float(tensor.dtype()); }

struct Writer {
  const Graph& graph;
  int64_t inline_elements;
  std::string indent;
  std::string out;

  std::string reference(ValueId id) const { return id == no_value ? "_" : cat("%", id); }

  std::string declaration(ValueId id) const {
    const Value& value = graph.value(id);
    std::string text = reference(id);
    if (!value.name.empty()) text += cat(" ", quote(value.name, whole));
    return text;
  }

  std::string typed(ValueId id) const {
    return id == no_value ? "_" : cat(declaration(id), " : ", text(graph.value(id).type, graph.symbols));
  }

  std::string constant_text(const Constant& constant) const {
    const Tensor& source = constant.source;
    if (!constant.parts.empty()) {
      std::vector<std::string> parts;
      for (const Constant& part : constant.parts) parts.push_back(constant_text(part));
      return cat("stack (", join(parts, "), ("), ")", constant.steps.empty() ? "" : cat(" ; ", text(constant.steps)));
    }
    bool file = !constant.initializer.empty();
    std::string out =
        file ? cat(constant.literal ? "literal " : "file ", quote(constant.initializer, whole)) : "inline";
    out += cat(" : ", dtype_name(source.dtype()), source.shape().text(), " =");
    out += writable(source) && source.elements() <= inline_elements ? elements_text(source) : " ...";
    if (!constant.steps.empty()) out += cat(" ; ", text(constant.steps));
    return out;
  }

  std::string attribute_text(const Attribute& attribute) const {
    auto list = [](const auto& items, auto item) {
      std::vector<std::string> parts;
      for (const auto& one : items) parts.push_back(item(one));
      return cat("[", join(parts, ", "), "]");
    };
    // A float always has a point or an exponent, so that it reads back as one.
    auto real = [](double value) {
      std::string text = cat(value);
      return text.find_first_of(".ein") == whole ? text + ".0" : text;
    };
    if (auto* value = std::get_if<int64_t>(&attribute)) return cat(*value);
    if (auto* value = std::get_if<double>(&attribute)) return real(*value);
    if (auto* value = std::get_if<std::string>(&attribute)) return quote(*value, whole);
    if (auto* value = std::get_if<std::vector<int64_t>>(&attribute))
      return cat("ints", list(*value, [](int64_t x) { return cat(x); }));
    if (auto* value = std::get_if<std::vector<double>>(&attribute)) return cat("floats", list(*value, real));
    if (auto* value = std::get_if<std::vector<std::string>>(&attribute))
      return cat("strings", list(*value, [](const std::string& x) { return quote(x, whole); }));
    const Tensor& tensor = std::get<Tensor>(attribute);
    return cat("tensor(", dtype_name(tensor.dtype()), tensor.shape().text(), " =", elements_text(tensor), ")");
  }

  void node(const Node& node) {
    std::vector<std::string> outputs, inputs;
    for (ValueId id : node.outputs) outputs.push_back(typed(id));
    for (ValueId id : node.inputs) inputs.push_back(reference(id));
    out += cat(indent, "node ", quote(node.name, whole));
    if (auto module = graph.modules.find(node.name); module != graph.modules.end())
      out += cat(" in ", quote(module->second, whole));
    if (node.stage) out += cat(" stage ", node.stage);
    if (node.recomputed) out += " recomputed";
    out += cat(" : ", join(outputs, " , "), " = ", node.op, "(", join(inputs, ", "), ")");
    for (const auto& [name, attribute] : node.attributes) out += cat(" ", name, "=", attribute_text(attribute));
    out += "\n";
    for (const auto& [name, body] : node.bodies) {
      out += cat(indent, "body ", quote(name, whole), " {\n");
      Writer inner{*body, inline_elements, indent + "  ", {}};
      inner.all();
      out += inner.out + indent + "}\n";
    }
  }

  void all() {
    if (!graph.name.empty()) out += cat(indent, "graph ", quote(graph.name, whole), "\n");
    for (ValueId id : graph.inputs) out += cat(indent, "input ", typed(id), "\n");
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (const auto& constant = graph.value(id).constant)
        out += cat(indent, "const ", declaration(id), " = ", constant_text(*constant), "\n");
    for (const Node& one : graph.nodes) node(one);
    for (ValueId id : graph.outputs) out += cat(indent, "output ", reference(id), "\n");
  }
};

/// Parses one graph, up to the end or a closing brace.
class Reader {
 public:
  Reader(const std::vector<std::string>& lines, size_t& line) : lines_(lines), line_(line) {}

  Graph graph() {
    for (; line_ < lines_.size(); ++line_) {
      text_ = trimmed(lines_[line_]);
      at_ = 0;
      if (text_.empty() || text_[0] == '#') continue;
      if (text_ == "}") break;
      statement();
    }
    return std::move(graph_);
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    throw Error(Code::invalid_argument, cat("graph text, line ", line_ + 1, ": ", what, " at ",
                                            quote(text_.substr(std::min(at_, text_.size())), 60)));
  }
  void blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    blanks();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) bad(cat("expected ", quote(token)));
  }
  bool done() {
    blanks();
    return at_ >= text_.size();
  }
  std::string string() {
    blanks();
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (at_ >= text_.size() || text_[at_] != '"' || end >= text_.size()) bad("expected a quoted string");
    std::string out = unquote(text_.substr(at_, end + 1 - at_));
    at_ = end + 1;
    return out;
  }
  std::string_view word(std::string_view stops) {
    blanks();
    size_t end = std::min(text_.find_first_of(stops, at_), text_.size());
    std::string_view out = text_.substr(at_, end - at_);
    if (out.empty()) bad("expected a word");
    at_ = end;
    return out;
  }
  /// The name of an op or an attribute: visible characters other than delimiters.
  std::string name(std::string_view stops) {
    std::string_view out = word(stops);
    for (char c : out)
      if (c <= ' ' || c > '~' || std::string_view("\"=,()[]{};").find(c) != std::string_view::npos) bad("no name");
    return std::string(out);
  }
  int64_t integer() {
    int64_t out;
    if (!parse_int(word(" ,;)]"), out)) bad("expected an integer");
    return out;
  }
  double real() {
    double out;
    if (!parse_double(word(" ,;)]"), out)) bad("expected a number");
    return out;
  }

  /// "%7", with an optional name; numbers of the text are mapped to ValueIds.
  ValueId declared() {
    expect("%");
    int64_t number = integer();
    blanks();
    std::string name = at_ < text_.size() && text_[at_] == '"' ? string() : std::string();
    auto [place, fresh] = numbers_.try_emplace(number, no_value);
    if (!fresh) bad("a value is defined twice");
    return place->second = graph_.add_value(std::move(name));
  }
  ValueId used() {
    if (take("_")) return no_value;
    expect("%");
    auto found = numbers_.find(integer());
    if (found == numbers_.end()) bad("a value is used that is not defined");
    return found->second;
  }

  DType dtype() {
    std::string_view name = word("[ ");
    DType out = dtype_from_name(name);
    if (out == DType::none && name != "?") bad("unknown dtype");
    return out;
  }
  Type type() {
    Type out;
    out.dtype = dtype();
    expect("[");
    if (take("...]")) return out;
    out.dims.emplace();
    if (take("]")) return out;
    do {
      if (out.dims->size() == static_cast<size_t>(Shape::max_rank)) bad("a type of too many dimensions");
      size_t end = at_;
      for (bool inside = false; end < text_.size() && (inside || (text_[end] != ',' && text_[end] != ']')); ++end) {
        if (text_[end] == '\\') ++end;
        else if (text_[end] == '"') inside = !inside;
      }
      out.dims->push_back(Dim::parse(text_.substr(at_, end - at_), graph_.symbols));
      at_ = end;
    } while (take(","));
    expect("]");
    return out;
  }
  std::vector<int64_t> integers() {
    std::vector<int64_t> out;
    expect("[");
    if (take("]")) return out;
    do out.push_back(integer());
    while (take(","));
    expect("]");
    return out;
  }

  Tensor elements(DType dtype, const Shape& shape) {
    if (checked_elements({shape.begin(), shape.end()}, 64) > static_cast<int64_t>(text_.size() - at_))
      bad("the shape has more elements than the text");
    Tensor wide(integral(dtype) ? DType::i64 : DType::f64, shape);
    for (int64_t i = 0; i < wide.elements(); ++i) {
      if (integral(dtype)) wide.as<int64_t>()[i] = integer();
      else wide.as<double>()[i] = real();
    }
    if (!integral(dtype)) return materialize({{}, wide, {{RecipeStep::Kind::cast, {}, dtype}}});
    Tensor out(dtype, shape);  // little-endian: the low bytes of the wide integer
    size_t size = static_cast<size_t>(dtype_bits(dtype)) / 8;
    for (int64_t i = 0; i < wide.elements(); ++i)
      std::memcpy(out.data() + i * static_cast<int64_t>(size), &wide.as<int64_t>()[i], size);
    return out;
  }

  std::vector<RecipeStep> steps() {
    static constexpr std::pair<std::string_view, RecipeStep::Kind> kinds[] = {
        {"transpose", RecipeStep::Kind::transpose},
        {"slice", RecipeStep::Kind::slice},
        {"reshape", RecipeStep::Kind::reshape},
        {"cast", RecipeStep::Kind::cast},
        {"reinterpret", RecipeStep::Kind::reinterpret}};
    std::vector<RecipeStep> out;
    while (take(";")) {
      std::string_view name = word(" ");
      auto kind =
          std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& row) { return row.first == name; });
      if (kind == std::end(kinds)) bad("unknown step");
      RecipeStep step{kind->second, {}, DType::none};
      if (step.kind == RecipeStep::Kind::cast || step.kind == RecipeStep::Kind::reinterpret) {
        step.dtype = dtype_from_name(word(" ;)"));
        if (step.dtype == DType::none) bad("unknown dtype");
      } else {
        while (!done() && text_[at_] != ';' && text_[at_] != ')') step.numbers.push_back(integer());
      }
      out.push_back(std::move(step));
    }
    return out;
  }

  Constant written_constant(int depth) {
    Constant constant;
    if (take("stack")) {
      if (depth > 4) bad("stacks are nested too deep");
      do {
        expect("(");
        constant.parts.push_back(written_constant(depth + 1));
        expect(")");
        const Constant &one = constant.parts.back(), &first = constant.parts[0];
        if (one.dtype() != first.dtype() || one.shape() != first.shape()) bad("the parts of a stack are not alike");
        if (one.shape().rank() == Shape::max_rank) bad("a stack of too many dimensions");
      } while (take(","));
    } else {
      constant.literal = take("literal");
      if (constant.literal || take("file")) constant.initializer = string();
      else expect("inline");
      expect(":");
      DType of = dtype();
      Shape shape(integers());
      expect("=");
      if (take("...")) bad("a constant was left out of the text");
      constant.source = elements(of, shape);
    }
    constant.steps = steps();
    try {
      check_steps(constant);
    } catch (const Error& error) {
      bad(error.message());
    }
    return constant;
  }

  void constant() {
    ValueId id = declared();
    expect("=");
    ValueId made = graph_.add_constant(written_constant(0));
    std::swap(graph_.value(id).constant, graph_.value(made).constant);
    graph_.value(id).type = graph_.value(made).type;
  }

  Attribute attribute() {
    blanks();
    auto list = [&](auto item) {
      std::vector<decltype(item())> out;
      expect("[");
      if (take("]")) return out;
      do out.push_back(item());
      while (take(","));
      expect("]");
      return out;
    };
    if (at_ < text_.size() && text_[at_] == '"') return string();
    if (take("ints")) return list([&] { return integer(); });
    if (take("floats")) return list([&] { return real(); });
    if (take("strings")) return list([&] { return string(); });
    if (take("tensor(")) {
      DType of = dtype();
      Shape shape(integers());
      expect("=");
      Tensor tensor = elements(of, shape);
      expect(")");
      return tensor;
    }
    std::string_view number = word(" ");
    int64_t whole_number;
    double value;
    if (parse_int(number, whole_number)) return whole_number;
    if (!parse_double(number, value)) bad("expected an attribute's value");
    return value;
  }

  void node() {
    Node node;
    node.name = string();
    if (take("in ")) graph_.modules[node.name] = string();
    if (take("stage")) node.stage = static_cast<int32_t>(integer());
    node.recomputed = take("recomputed");
    expect(":");
    do {
      if (take("_")) {
        node.outputs.push_back(no_value);
        continue;
      }
      ValueId id = declared();
      expect(":");
      graph_.value(id).type = type();
      node.outputs.push_back(id);
    } while (take(","));
    expect("=");
    node.op = name("(");
    expect("(");
    if (!take(")")) {
      do node.inputs.push_back(used());
      while (take(","));
      expect(")");
    }
    while (!done()) {
      std::string key = name("=");
      expect("=");
      node.attributes.set(std::move(key), attribute());
    }
    graph_.nodes.push_back(std::move(node));
  }

  void statement() {
    if (take("graph")) {
      graph_.name = string();
    } else if (take("input")) {
      ValueId id = declared();
      expect(":");
      graph_.value(id).type = type();
      graph_.inputs.push_back(id);
    } else if (take("const")) {
      constant();
    } else if (take("node")) {
      node();
    } else if (take("body")) {
      if (graph_.nodes.empty()) bad("a body without a node");
      std::string name = string();
      expect("{");
      ++line_;
      Graph body = Reader(lines_, line_).graph();
      if (line_ >= lines_.size()) bad("a body is not closed");
      graph_.nodes.back().bodies.emplace_back(std::move(name), std::make_shared<Graph>(std::move(body)));
    } else if (take("output")) {
      graph_.outputs.push_back(used());
    } else {
      bad("unknown statement");
    }
  }

  const std::vector<std::string>& lines_;
  size_t& line_;
  std::string_view text_;
  size_t at_ = 0;
  Graph graph_;
  std::map<int64_t, ValueId> numbers_;
};

}  // namespace

std::string text(const Graph& graph, int64_t inline_elements) {
  Writer writer{graph, inline_elements, {}, {}};
  writer.all();
  return std::move(writer.out);
}

Graph parse_graph(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  size_t line = 0;
  Graph graph = Reader(lines, line).graph();
  if (line < lines.size())
    throw Error(Code::invalid_argument, cat("graph text, line ", line + 1, ": a brace too many"));
  return graph;
}

}  // namespace plait

// Files that break the rules: each ends in one Error that names the place, with bounded time and memory.
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

using A = onnx::AttributeProto;

void expect_bad_bytes(const std::string& bytes, const Names& parts) {
  expect_error(Code::bad_model, parts, [&] { import_bytes(blob_of(bytes), {}, test_ops()); });
}

ModelBuilder small() {
  ModelBuilder b;
  b.input("x");
  b.initializer("w", 1, {4}).set_raw_data(std::string(16, 'w'));
  b.node("Add", {"x", "w"}, {"y"}).set_name("n");
  b.output("y");
  return b;
}

/// A field of `number` that holds `content`.
std::string field(int number, const std::string& content) {
  std::string out;
  auto varint = [&](uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  };
  varint(static_cast<uint64_t>(number) << 3 | 2);
  varint(content.size());
  return out + content;
}

TEST(Hostile, OtherFiles) {
  expect_bad_bytes("", {"empty"});
  expect_bad_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:12\n", {"git-lfs pointer"});
  expect_bad_bytes("<!DOCTYPE html><html>Not found</html>", {"text file", "DOCTYPE"});
  expect_bad_bytes("PK\x03\x04zip", {"zip"});
  expect_bad_bytes(std::string(64, '\0'), {"not a valid ONNX file"});
  expect_bad_bytes("\x08\x07", {"no graph"});
}

TEST(Hostile, EveryTruncationIsAnErrorOrAWholeModel) {
  std::string bytes = small().bytes();
  int errors = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      import_bytes(blob_of(bytes.substr(0, size)), {}, test_ops());
    } catch (const Error& error) {
      ++errors;
      EXPECT_NE(error.code(), Code::internal) << error.message();
    }
  }
  // A file that ends between two fields of the model may be one: of what follows the graph only opset imports matter.
  EXPECT_GE(errors, static_cast<int>(bytes.size()) - 8);
}

TEST(Hostile, EveryDamagedByteIsAnErrorOrAModel) {
  std::string bytes = small().bytes();
  int errors = 0;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      try {
        verify(import_bytes(blob_of(damaged), {}, test_ops()).graph, "import");
      } catch (const Error& error) {
        ++errors;
        EXPECT_NE(error.code(), Code::internal) << "byte " << at << " bit " << bit << ": " << error.message();
      }
    }
  EXPECT_GT(errors, 100);
}

TEST(Hostile, WireFormat) {
  expect_bad_bytes(std::string("\x08\x07\x3A\xFF\xFF\xFF\xFF\x0F", 8),
                   {"are left"});            // length past the end
  expect_bad_bytes(std::string("\x08") + std::string(11, '\xFF'), {"more than 10 bytes"});       // endless number
  expect_bad_bytes(std::string("\x08\x07\x3B\x00", 4), {"wire type 3"});                         // a group
  expect_bad_bytes(std::string("\x08\x07\x02\x00", 4), {"field number"});                        // field 0
  expect_bad_bytes(std::string("\x08\x07\x0D\x00", 4), {"past the end"});                        // short fixed number
  expect_bad_bytes(std::string("\x08\x07\x3A\x02\x52\x05", 6), {"are left"});                    // inner beyond outer
}

TEST(Hostile, Nesting) {
  std::string graph;
  for (int i = 0; i < 60; ++i) graph = field(1, field(5, field(6, graph)));  // graph.node.attribute.g
  expect_bad_bytes("\x08\x07" + field(7, graph), {"nested"});
}

TEST(Hostile, ManyEmptyMessagesAreRefusedEarly) {
  auto empty_fields = [](size_t count) {  // of number 1: nodes in a graph, names in a node
    std::string out(2 * count, '\0');
    for (size_t i = 0; i < count; ++i) out[2 * i] = '\x0A';
    return out;
  };
  expect_bad_bytes("\x08\x07" + field(7, empty_fields(2'100'000)), {"messages"});
  expect_bad_bytes("\x08\x07" + field(7, field(1, empty_fields(16'100'000))), {"fields"});
}

TEST(Hostile, WhatIsNeverReadCostsNothing) {
  ModelBuilder b = small();
  b.graph().set_doc_string(std::string(1 << 20, 'd'));
  for (int i = 0; i < 1000; ++i) {
    auto& info = *b.graph().add_value_info();
    info.set_name("y");  // a lie, and many times
    set_type(info, 7, {"-5"});
  }
  b.graph().mutable_node(0)->add_metadata_props()->set_key("stack trace");
  b.model.add_training_info();
  EXPECT_EQ(ops_of(b.import().graph), Names{"Add"});
}

TEST(Hostile, NamesAreDefinedOnce) {
  ModelBuilder b = small();
  b.node("Neg", {"x"}, {"y"}).set_name("again");
  expect_bad(b, {"\"again\"", "\"y\" is defined twice"});
  b = small();
  b.node("Neg", {"x"}, {"w"});
  expect_bad(b, {"\"w\" is defined twice"});
  b = small();
  b.initializer("w", 1, {1}).add_float_data(1);
  expect_bad(b, {"initializer \"w\"", "twice"});
  b = small();
  b.input("x");
  expect_bad(b, {"input \"x\"", "twice"});
  b = small();
  b.output("y");
  expect_bad(b, {"output \"y\"", "twice"});
  b = small();
  b.initializer("", 1, {1}).add_float_data(1);
  expect_bad(b, {"empty name"});
}

TEST(Hostile, NamesAreDefinedAtAll) {
  ModelBuilder b = small();
  b.node("Neg", {"nothing\n"}, {"z"}).set_name("n2");
  expect_bad(b, {"\"n2\"", "reads \"nothing\\n\""});
  b = small();
  b.output("void");
  expect_bad(b, {"\"void\"", "nothing defines"});
}

TEST(Hostile, Cycles) {
  ModelBuilder b;
  b.input("x");
  b.node("Add", {"x", "q"}, {"p"}).set_name("first");
  b.node("Neg", {"p"}, {"q"});
  b.output("q");
  expect_bad(b, {"cycle"});
  ModelBuilder self;
  self.node("Neg", {"p"}, {"p"});
  expect_bad(self, {"cycle"});
}

TEST(Hostile, Opsets) {
  ModelBuilder b = small();
  b.model.clear_opset_import();
  expect_bad(b, {"\"n\"", "imports no opset", "ai.onnx"});
  b.import_opset("", 23);
  b.import_opset("ai.onnx", 22);
  expect_bad(b, {"23", "22"});
  b = small();
  b.import_opset("x.y", -1);
  expect_bad(b, {"x.y", "-1"});
  b = small();
  b.graph().mutable_node(0)->set_domain("com.microsoft");
  expect_bad(b, {"imports no opset", "com.microsoft"});
  b = small();
  b.model.clear_ir_version();
  expect_bad(b, {"ir_version"});
}

TEST(Hostile, Attributes) {
  auto with = [](A::AttributeType type, auto set) {
    ModelBuilder b = small();
    auto& node = b.node("Gemm", {"x", "x"}, {"z"});
    set(add_attribute(node, "transB", type));
    return b;
  };
  expect_bad(with(A::INT, [](A& a) { a.set_f(1); }), {"\"transB\"", "field i", "f is set"});
  expect_bad(with(A::INT, [](A& a) { a.set_i(1), a.add_ints(1); }), {"ints is set"});
  expect_bad(with(A::UNDEFINED, [](A& a) { a.set_i(1); }), {"no type"});
  expect_bad(with(A::TENSOR, [](A&) {}), {"field t, which is not set"});
  expect_bad(with(A::FLOAT, [](A& a) { a.set_f(1); }), {"transB", "float"});
  expect_bad(with(A::INT, [](A& a) { a.set_name(""); }), {"no name"});
  expect_bad(with(A::INT, [](A& a) { a.set_ref_attr_name("q"); }), {"in none"});
  expect_bad(with(A::INT, [](A& a) { a.set_ref_attr_name("q"), a.set_i(1); }), {"refers to another"});
  expect_unsupported(with(A::TENSORS, [](A& a) { a.add_tensors(); }), {"kind that Plait does not read"});
  ModelBuilder twice = with(A::INT, [](A& a) { a.set_i(1); });
  set_int(*twice.graph().mutable_node(1), "transB", 1);
  expect_bad(twice, {"specified twice"});
}

/// Numbers of kinds that do not exist.
TEST(Hostile, NumbersOfKindsThatThereAreNot) {
  auto varint = [](int number, int value) {  // of less than 128
    std::string out;
    for (int key = number << 3; key; key >>= 7) out.push_back(static_cast<char>((key & 0x7F) | (key >> 7 ? 0x80 : 0)));
    return out + static_cast<char>(value);
  };
  // What is sent again of the graph is added to it.
  const std::string kind = field(1, "transB") + varint(3, 1) + varint(20, 99);
  const std::string node = field(1, "x") + field(1, "x") + field(2, "z") + field(4, "Gemm") + field(5, kind);
  expect_bad_bytes(small().bytes() + field(7, field(1, node)), {"transB", "no type"});
  const std::string item = field(1, "location") + field(2, "w.bin");
  const std::string tensor = varint(1, 2) + varint(2, 1) + field(8, "v") + field(13, item) + varint(14, 7);
  expect_bad_bytes(small().bytes() + field(7, field(5, tensor)), {"\"v\"", "data_location"});
}

/// Sizes of results are worked out, and checked as they are made; what the file declares is not asked.
TEST(Hostile, WhatAFileSaysOfResultsIsNotBelieved) {
  ModelBuilder b = small();
  set_type(*b.graph().mutable_output(0), 7, {"1", "2"});
  Graph graph = b.import().graph;
  EXPECT_FALSE(graph.value(graph.outputs[0]).type.dims.has_value());
  EXPECT_NE(graph.value(graph.outputs[0]).type.dtype, DType::i64);
}

TEST(Hostile, InputSizes) {
  ModelBuilder b = small();
  b.input("z", {"-3"});
  expect_bad(b, {"input \"z\"", "a dimension is -3"});
  b = small();
  b.input("z", {"9223372036854775807", "s", "9223372036854775807"});
  expect_bad(b, {"input \"z\"", "overflow"});
  b = small();
  b.input("z", Names(1000, "1"));
  expect_unsupported(b, {"input \"z\"", "rank 1000"});
}

/// Two bytes of a file for each dimension, and a hundred of memory: they count as any other message.
TEST(Hostile, DimensionsAreCounted) {
  std::string shape;
  for (int i = 0; i < 2'500'000; ++i) shape += std::string("\x0A\0", 2);
  for (int list : {11, 12}) {  // inputs and outputs
    const std::string info = field(1, "z") + field(2, field(1, field(2, shape)));
    expect_bad_bytes(field(7, field(list, info)), {"more than 2000000 messages"});
  }
  std::string opsets;
  for (int i = 0; i < 2'500'000; ++i) opsets += std::string("\x42\0", 2);
  expect_bad_bytes(opsets, {"more than 2000000 messages"});
}

TEST(Hostile, TextFromTheFileIsEscaped) {
  ModelBuilder b = small();
  b.graph().mutable_node(0)->set_name("\x1B[2J\xFF");
  for (const char* op : {"Unknown", "Ev\nil"}) {
    b.graph().mutable_node(0)->set_op_type(op);
    try {
      b.import();
      ADD_FAILURE() << op;
    } catch (const Error& error) {
      for (char letter : error.message()) EXPECT_TRUE(letter >= ' ' && letter < 0x7F) << error.message();
    }
  }
}

/// Raw data beyond 2 GiB in the file itself, as a sparse file: 4 GiB that no disk holds.
TEST(Hostile, InlineDataOfMoreThanTwoGiB) {
  TempFolder folder;
  constexpr int64_t elements = int64_t{1} << 30;
  ModelBuilder b;
  b.output("w");
  std::string model = b.bytes();
  onnx::TensorProto tensor;
  tensor.set_name("w");
  tensor.set_data_type(1);
  tensor.add_dims(elements);
  auto varint = [](uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    return out + static_cast<char>(value);
  };
  std::string tensor_head = tensor.SerializeAsString() + "\x4A" + varint(elements * 4);
  std::string graph_head = "\x2A" + varint(tensor_head.size() + elements * 4) + tensor_head;
  std::string head = model + "\x3A" + varint(graph_head.size() + elements * 4) + graph_head;
  std::string path = folder.write("big.onnx", head);
  std::filesystem::resize_file(path, head.size() + elements * 4);
  ImportedModel out = import_file(path, test_ops());
  EXPECT_EQ(out.graph.constant(out.graph.outputs[0])->bytes(), elements * 4);
}

}  // namespace
}  // namespace plait

// External data: through a resolver, and in files with links.
#include "core/base/text.h"
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using Items = std::vector<std::pair<std::string, std::string>>;

ModelBuilder with_external(const Items& items, const std::vector<int64_t>& dims = {2}) {
  ModelBuilder b;
  b.external("w", dims, items);
  b.output("w");
  return b;
}

ExternalResolver sixteen_bytes() {
  return [](const std::string&) { return blob_of("0123456789abcdef"); };
}

std::string first_bytes(const ImportedModel& model) {
  const Tensor& tensor = *model.graph.constant(model.graph.outputs[0]);
  return std::string(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
}

TEST(ExternalData, OffsetAndLength) {
  Items odd{{"location", "w.bin"}, {"offset", "3"}, {"length", "8"}};
  EXPECT_EQ(first_bytes(with_external(odd).import(sixteen_bytes())), "3456789a") << "offsets need no alignment";
  EXPECT_EQ(first_bytes(with_external({{"location", "w.bin"}, {"offset", "8"}}).import(sixteen_bytes())), "89abcdef");
  EXPECT_EQ(first_bytes(with_external({{"location", "w.bin"}, {"offset", "4"}}).import(sixteen_bytes())), "456789ab")
      << "as long as the tensor, as in ONNX Runtime";
  EXPECT_EQ(first_bytes(with_external({{"location", "w.bin"}, {"checksum", "x"}, {"basepath", "/etc"}}, {4})
                            .import(sixteen_bytes())), "0123456789abcdef") << "other keys change nothing";
}

TEST(ExternalData, EachFileIsOpenedOnceAndShared) {
  ModelBuilder b;
  b.external("a", {2}, {{"location", "d/w.bin"}, {"length", "8"}});
  b.external("b", {2}, {{"location", "./d//w.bin"}, {"offset", "8"}, {"length", "8"}});
  b.output("a");
  b.output("b");
  Names asked;
  ImportedModel out = b.import([&](const std::string& location) {
    asked.push_back(location);
    return blob_of("0123456789abcdef");
  });
  EXPECT_EQ(asked, Names{"d/w.bin"});
  EXPECT_EQ(out.graph.constant(out.graph.outputs[0])->blob(), out.graph.constant(out.graph.outputs[1])->blob());
}

TEST(ExternalData, TensorsOfConstantNodesToo) {
  ModelBuilder b;
  auto& tensor = *add_attribute(b.node("Constant", {}, {"c"}), "value", onnx::AttributeProto::TENSOR).mutable_t();
  tensor.set_data_type(1);
  tensor.add_dims(4);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& item = *tensor.add_external_data();
  item.set_key("location");
  item.set_value("w.bin");
  b.output("c");
  EXPECT_EQ(first_bytes(b.import(sixteen_bytes())), "0123456789abcdef");
}

TEST(ExternalData, RangesAreChecked) {
  struct Row {
    Items items;
    const char* says;
  };
  for (const Row& row : {
           Row{{{"offset", "9"}, {"length", "8"}}, "runs past its end"},
           Row{{{"offset", "17"}, {"length", "8"}}, "begins at byte 17"},
           Row{{{"offset", "9223372036854775807"}, {"length", "8"}}, "begins at byte"},
           Row{{{"offset", "8"}, {"length", "9223372036854775807"}}, "runs past its end"},
           Row{{{"offset", "18446744073709551616"}}, "offset"},
           Row{{{"offset", "-8"}}, "offset"},
           Row{{{"length", "-1"}}, "length"},
           Row{{{"offset", "0x8"}}, "offset"},
           Row{{{"offset", " 8"}}, "offset"},
           Row{{{"offset", ""}}, "offset"},
           Row{{{"length", "8.0"}}, "length"},
           Row{{{"length", "7"}}, "needs 8 bytes"},
           Row{{{"length", "9"}}, "needs 8 bytes"},
           Row{{}, "needs 8 bytes"},
           Row{{{"offset", "9"}}, "runs past its end"},
           Row{{{"offset", "8"}, {"offset", "0"}}, "twice"},
       }) {
    Items items = row.items;
    items.emplace_back("location", "w.bin");
    expect_error(Code::bad_model, {"initializer \"w\"", row.says},
                 [&] { with_external(items).import(sixteen_bytes()); });
  }
}

TEST(ExternalData, LocationsThatNoResolverIsAskedFor) {
  for (const std::string& location :
       {std::string(""), std::string("/etc/passwd"), std::string("../w.bin"), std::string("a/../../w.bin"),
        std::string(".."),
        std::string("..\\w.bin"), std::string("C:w.bin"), std::string("\\\\host\\w"), std::string("w\0.bin", 6),
        std::string("*/_ORT_MEM_ADDR_/*")}) {
    bool asked = false;
    expect_error(Code::bad_model, {"initializer \"w\"", "location"}, [&] {
      with_external({{"location", location}}).import([&](const std::string&) {
        asked = true;
        return blob_of("01234567");
      });
    });
    EXPECT_FALSE(asked) << quote(location);
  }
  expect_bad(with_external({{"offset", "0"}}), {"no location"});
}

TEST(ExternalData, LocationAndFieldMustAgree) {
  ModelBuilder b = with_external({{"location", "w.bin"}});
  b.graph().mutable_initializer(0)->clear_data_location();
  expect_bad(b, {"data_location"});
  b.graph().mutable_initializer(0)->clear_external_data();
  b.graph().mutable_initializer(0)->set_data_location(onnx::TensorProto::EXTERNAL);
  expect_bad(b, {"external_data is empty"});
}

TEST(ExternalData, MissingFiles) {
  expect_error(Code::not_found, {"w.bin"}, [] { with_external({{"location", "w.bin"}}).import(); });
  TempFolder folder;
  std::string path = folder.write("m.onnx", with_external({{"location", "w.bin"}}).bytes());
  expect_error(Code::not_found, {"w.bin", "m.onnx"}, [&] { import_file(path, test_ops()); });
  expect_error(Code::not_found, {"absent.onnx"}, [&] { import_file((folder / "absent.onnx").string(), test_ops()); });
}

TEST(ExternalData, FilesAndLinks) {
  TempFolder folder;
  std::string model = with_external({{"location", "w.bin"}}).bytes();
  folder.write("outside.bin", "OUTSIDE!");
  std::string plain = folder.write("plain/m.onnx", model);
  folder.write("plain/w.bin", "inside!!");
  EXPECT_EQ(first_bytes(import_file(plain, test_ops())), "inside!!");

  // A link that leaves the folder.
  std::string linked = folder.write("linked/m.onnx", model);
  fs::create_symlink(folder / "outside.bin", folder / "linked/w.bin");
  expect_error(Code::bad_model, {"w.bin", "outside the model's directory"}, [&] { import_file(linked, test_ops()); });

  // A cache as Hugging Face's: both files are links into one folder of blobs.
  folder.write("cache/blobs/aa", model);
  folder.write("cache/blobs/bb", "blobbed!");
  fs::create_directories(folder / "cache/snapshots/1");
  fs::create_symlink("../../blobs/aa", folder / "cache/snapshots/1/m.onnx");
  fs::create_symlink("../../blobs/bb", folder / "cache/snapshots/1/w.bin");
  EXPECT_EQ(first_bytes(import_file((folder / "cache/snapshots/1/m.onnx").string(), test_ops())), "blobbed!");

  // A store that keeps equal files once: the names are as good as any.
  std::string twin = folder.write("twin/m.onnx", model);
  fs::create_hard_link(folder / "plain/w.bin", folder / "twin/w.bin");
  EXPECT_EQ(first_bytes(import_file(twin, test_ops())), "inside!!");
}

}  // namespace
}  // namespace plait

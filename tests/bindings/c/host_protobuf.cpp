// A host with a Protocol Buffers library of its own, the same messages registered in it: it reads a model by that, Plait reads it by
// the one that it has inside, and both go on. Usage: host_protobuf MODEL_DIRECTORY
#include <fstream>
#include <string>

#include "onnx-ml.pb.h"
#include "tests/bindings/c/check.h"

static int nodes_by_the_host(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::ModelProto model;
  CHECK(model.ParseFromIstream(&file));
  CHECK(model.SerializeAsString().size() > 100);
  return model.graph().node_size();
}

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::string directory = words[1], file = directory + "/model.onnx";
  const int nodes = nodes_by_the_host(file);
  CHECK(nodes > 10);
  for (int round = 0; round < 3; ++round) {
    plait_model* model = nullptr;
    plait_tensor* info = nullptr;
    OK(plait_model_open(directory.c_str(), nullptr, &model));
    CHECK(nodes_by_the_host(file) == nodes);
    OK(plait_model_info(model, &info));
    CHECK(std::strstr(plait_tensor_text(info), ("\"nodes\": " + std::to_string(nodes)).c_str()));
    OK(plait_tensor_release(info));
    OK(plait_model_release(model));
    CHECK(nodes_by_the_host(file) == nodes);
  }
  google::protobuf::ShutdownProtobufLibrary();
  return failures != 0;
}

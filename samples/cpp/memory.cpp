// A model whose files are in memory, from wherever they come: here they are read. Usage: memory MODEL_DIRECTORY PROMPT
#include <cstdio>
#include <fstream>
#include <iterator>

#include "plait.hpp"

int main(int count, char** words) {
  if (count != 3) return 2;
  std::vector<plait_api::Tensor> contents;
  std::vector<std::pair<std::string, const plait_api::Tensor*>> files;
  contents.reserve(4);
  for (const char* name : {"model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"}) {
    std::ifstream file(std::string(words[1]) + "/" + name, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto size = static_cast<int64_t>(bytes.size());
    contents.push_back(plait_api::Tensor::copy(PLAIT_U8, {size}, bytes.data(), size));
    files.emplace_back(name, &contents.back());
  }
  plait_api::Model model = plait_api::Model::of_files(files);
  plait_api::Generator generator(model);
  std::puts(
      generator.submit(words[2], plait_api::Options().set("max_tokens", 16).set("temperature", "0")).text().c_str());
}

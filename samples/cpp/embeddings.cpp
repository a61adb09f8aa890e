// How near texts are to each other, by their mean hidden states. Usage: embeddings MODEL_DIRECTORY TEXT OTHER_TEXT
#include <cmath>
#include <cstdio>
#include <numeric>

#include "plait.hpp"

static std::vector<float> embedding(const plait_api::Generator& generator, const char* text) {
  return generator.submit(text, plait_api::Options().set("kind", "embed").set("pooling", "mean"))
      .result()
      .values<float>();
}

static double dot(const std::vector<float>& one, const std::vector<float>& two) {
  return std::inner_product(one.begin(), one.end(), two.begin(), 0.0);
}

int main(int count, char** words) {
  if (count != 4) return 2;
  plait_api::Model model(words[1]);
  plait_api::Generator generator(model);
  const std::vector<float> one = embedding(generator, words[2]), two = embedding(generator, words[3]);
  std::printf("%.3f\n", dot(one, two) / std::sqrt(dot(one, one) * dot(two, two)));
}

using System;
using System.Globalization;
using System.Linq;
using Plait;

/// <summary>How near texts are to each other, by their mean hidden states. Usage: MODEL_DIRECTORY TEXT OTHER_TEXT</summary>
static class Embeddings {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Generator generator = model.Generator()) {
      float[] one = Embedding(generator, words[1]), two = Embedding(generator, words[2]);
      double cosine = Dot(one, two) / Math.Sqrt(Dot(one, one) * Dot(two, two));
      Console.WriteLine(cosine.ToString("F3", CultureInfo.InvariantCulture));
    }
  }

  static double Dot(float[] one, float[] two) {
    return one.Zip(two, (x, y) => (double)x * y).Sum();
  }

  static float[] Embedding(Generator generator, string text) {
    using (Request request = generator.Submit(text, new Options().Kind("embed").Pooling("mean")))
    using (Tensor result = request.Result()) return result.Floats();
  }
}

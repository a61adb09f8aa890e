using System;
using System.Globalization;
using Plait;

/// <summary>Three steps of training on one text, whose loss falls. Usage: MODEL_DIRECTORY TEXT</summary>
static class ThreeSteps {
  static void Main(string[] words) {
    using (Model model = Model.Open(words[0]))
    using (Trainer trainer = model.Trainer(new Options().Set("optimizer", "sgd").Set("lr", 0.5).Set("schedule", "constant"))) {
      int[] ids = model.Tokenizer().Encode(words[1]);
      using (Tensor document = Tensor.Of(ids, 1, ids.Length)) {
        for (int i = 0; i < 3; ++i) Console.WriteLine(trainer.Step(document).Loss.ToString("F3", CultureInfo.InvariantCulture));
      }
    }
  }
}

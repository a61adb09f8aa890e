using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using Plait;

/// <summary>Any graph, tensors in, tensors out: an encoder's states of a row of tokens. Inputs are i64 [1, s]: tokens for the
/// first, ones for a mask, zeros for what else there is. Usage: MODEL.onnx OUTPUT TOKEN...</summary>
static class SessionTensors {
  static void Main(string[] words) {
    long[] tokens = words.Skip(2).Select(long.Parse).ToArray();
    using (Model model = Model.Open(words[0]))
    using (Session session = model.Session()) {
      var inputs = new Dictionary<string, Tensor>();
      foreach (Operand operand in session.Inputs) {
        long[] rest = tokens.Select(token => operand.Name.Contains("mask") ? 1L : 0L).ToArray();
        inputs[operand.Name] = Tensor.Of(inputs.Count == 0 ? tokens : rest, 1, tokens.Length);
      }
      using (Tensor result = session.Run(inputs, words[1])[words[1]]) {
        foreach (long size in result.Dims) Console.Write(size + " ");
        result.Use<float>(values => Console.WriteLine(values[0].ToString("F3", CultureInfo.InvariantCulture)));
      }
    }
  }
}

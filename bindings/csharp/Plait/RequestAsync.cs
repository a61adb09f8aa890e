#if NETSTANDARD2_1_OR_GREATER || NET5_0_OR_GREATER
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Plait {

public sealed partial class Request : IAsyncEnumerable<Token> {
  /// <summary>All tokens, as they come, each awaited on the thread pool; cancelling cancels the request.</summary>
  public async IAsyncEnumerator<Token> GetAsyncEnumerator(CancellationToken cancellation = default) {
    using (cancellation.Register(Cancel)) {
      for (;;) {
        Token token = await Task.Run(() => Next(), CancellationToken.None).ConfigureAwait(false);
        cancellation.ThrowIfCancellationRequested();
        if (token == null) yield break;
        yield return token;
      }
    }
  }
}

}
#endif

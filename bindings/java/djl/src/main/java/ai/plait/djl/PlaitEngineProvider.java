package ai.plait.djl;

import ai.djl.engine.Engine;
import ai.djl.engine.EngineProvider;

/** How DJL finds Plait. Nothing native is loaded until the engine is asked for. */
public final class PlaitEngineProvider implements EngineProvider {
  @Override
  public String getEngineName() {
    return PlaitEngine.NAME;
  }

  @Override
  public int getEngineRank() {
    return PlaitEngine.RANK;
  }

  @Override
  public Engine getEngine() {
    return Holder.ENGINE;
  }

  private static final class Holder {
    static final Engine ENGINE = new PlaitEngine();
  }
}

package ai.plait.djl;

import ai.djl.Device;
import ai.djl.Model;
import ai.djl.engine.Engine;
import ai.djl.engine.EngineException;
import ai.djl.ndarray.NDManager;
import ai.djl.util.passthrough.PassthroughNDManager;
import ai.plait.Plait;

/** The engine "Plait": generates text. It has no arrays of its own; text goes in and out through {@link PlaitTranslatorFactory}. */
public final class PlaitEngine extends Engine {
  static final String NAME = "Plait";
  /** Above the engines that have arrays, so that these stay the default. */
  static final int RANK = 15;

  private final String version;

  PlaitEngine() {
    try {
      version = Plait.version();
    } catch (LinkageError error) {
      throw new EngineException(error.getMessage(), error);  // as an exception: an Error would stop the server's worker
    }
  }

  @Override
  public Engine getAlternativeEngine() {
    return null;
  }

  @Override
  public String getEngineName() {
    return NAME;
  }

  @Override
  public int getRank() {
    return RANK;
  }

  @Override
  public String getVersion() {
    return version;
  }

  @Override
  public boolean hasCapability(String capability) {
    return false;
  }

  @Override
  public Model newModel(String name, Device device) {
    return new PlaitModel(name, newBaseManager(device));
  }

  @Override
  public NDManager newBaseManager() {
    return newBaseManager(null);
  }

  @Override
  public NDManager newBaseManager(Device device) {
    return new PassthroughNDManager(this, device == null ? defaultDevice() : device);
  }

  @Override
  public String toString() {
    return NAME + ":" + version;
  }
}

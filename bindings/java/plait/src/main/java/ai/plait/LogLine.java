package ai.plait;

/** A log line of the library. */
public final class LogLine {
  private final LogLevel level;
  private final String text;

  LogLine(LogLevel level, String text) {
    this.level = level;
    this.text = text;
  }

  public LogLevel level() {
    return level;
  }

  public String text() {
    return text;
  }

  @Override
  public String toString() {
    return level + ": " + text;
  }
}

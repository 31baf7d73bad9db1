import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Runs scripts of `rxd export flink` in an embedded mini cluster, as the SQL client would. What is left of the rows of a statement that only selects
 * is written beside its script, to FILE.rows.
 */
public class RunScript {
  private static final Pattern SETTING = Pattern.compile("SET '([^']*)' = '([^']*)'");

  /** The statements of a script: a statement set is one. */
  static List<String> statements(String script) {
    List<String> found = new ArrayList<>();
    StringBuilder current = new StringBuilder();
    boolean isInSet = false;
    for (String line : script.split("\n")) {
      if (current.length() == 0 && (line.isBlank() || line.startsWith("--"))) continue;
      current.append(line).append('\n');
      if (line.endsWith("STATEMENT SET BEGIN")) isInSet = true;
      if (line.equals("END;")) isInSet = false;
      if (isInSet || !line.endsWith(";")) continue;
      String text = current.toString().strip();
      // A statement set needs its own semicolons, and none after END.
      found.add(text.substring(0, text.length() - 1));
      current.setLength(0);
    }
    if (!current.toString().isBlank()) throw new IllegalArgumentException("unfinished statement: " + current);
    return found;
  }

  static void run(Path script) throws Exception {
    List<String> statements = statements(Files.readString(script));
    Configuration configuration = new Configuration();
    configuration.setString("parallelism.default", System.getProperty("parallelism", "1"));
    configuration.setString("taskmanager.numberOfTaskSlots", "8");
    for (String statement : statements) {
      var setting = SETTING.matcher(statement);
      if (setting.matches()) configuration.setString(setting.group(1), setting.group(2));
    }
    TableEnvironment environment =
        TableEnvironment.create(EnvironmentSettings.newInstance().withConfiguration(configuration).build());
    boolean isUnnamed = false;
    for (String statement : statements) {
      if (SETTING.matcher(statement).matches()) continue;
      if (statement.contains("'connector' = '...'")) {
        isUnnamed = true;
        environment.executeSql(statement.replace("'connector' = '...'", "'connector' = 'blackhole'"));
        continue;
      }
      if (isUnnamed && statement.startsWith("INSERT INTO ")) {
        // Flink checks the statement as it is; what the table would have at the end is folded from the changes.
        environment.explainSql(statement);
        String query = statement.substring(statement.indexOf('\n') + 1).replace("\nON CONFLICT DO DEDUPLICATE", "");
        fold(environment.executeSql(query), script.resolveSibling("flink/out.db/part"));
        continue;
      }
      if (statement.startsWith("SELECT")) {
        fold(environment.executeSql(statement), Path.of(script + ".rows"));
        continue;
      }
      TableResult result = environment.executeSql(statement);
      if (result.getJobClient().isPresent()) result.await();
    }
  }

  /** Applies the changes of a query, and writes the rows that are left as JSON. */
  private static void fold(TableResult result, Path target) throws Exception {
    Map<String, Integer> rows = new LinkedHashMap<>();
    List<String> names = result.getResolvedSchema().getColumnNames();
    try (var iterator = result.collect()) {
      while (iterator.hasNext()) {
        Row row = iterator.next();
        StringBuilder text = new StringBuilder("{");
        for (int index = 0; index < names.size(); index++) {
          Object value = row.getField(index);
          boolean isBare = value == null || value instanceof Number || value instanceof Boolean;
          text.append(index > 0 ? "," : "").append('"').append(names.get(index)).append("\":");
          text.append(isBare ? String.valueOf(value) : '"' + String.valueOf(value).replace("\\", "\\\\").replace("\"", "\\\"") + '"');
        }
        boolean isAdded = row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER;
        rows.merge(text.append('}').toString(), isAdded ? 1 : -1, Integer::sum);
      }
    }
    Files.createDirectories(target.getParent());
    try (var writer = Files.newBufferedWriter(target)) {
      for (var entry : rows.entrySet()) {
        if (entry.getValue() < 0) throw new IllegalStateException("a row is taken back that was not sent: " + entry.getKey());
        for (int count = 0; count < entry.getValue(); count++) writer.write(entry.getKey() + "\n");
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    int failures = 0;
    for (String argument : arguments) {
      long begin = System.nanoTime();
      String outcome = "ok";
      try {
        run(Path.of(argument));
      } catch (Throwable failure) {
        Throwable cause = failure;
        while (cause.getCause() != null && cause.getCause() != cause) cause = cause.getCause();
        outcome = "failed: " + String.valueOf(cause).replace('\n', ' ');
        if (Boolean.getBoolean("trace")) failure.printStackTrace();
        failures++;
      }
      System.out.println(argument + "\t" + (System.nanoTime() - begin) / 1_000_000 + "\t" + outcome);
    }
    System.exit(failures == 0 ? 0 : 1);
  }
}

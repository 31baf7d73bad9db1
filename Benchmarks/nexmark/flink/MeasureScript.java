import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Runs scripts one after another, as RunScript does, and prints a line for each: its CPU time and its wall time in milliseconds, and the largest
 * resident memory of the process while it ran in KiB, separated by tabs.
 */
public class MeasureScript {
  public static void main(String[] arguments) throws Exception {
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    for (String argument : arguments) {
      System.gc();
      // The kernel forgets the largest memory so far.
      Files.writeString(Path.of("/proc/self/clear_refs"), "5");
      long cpu = system.getProcessCpuTime();
      long begin = System.nanoTime();
      RunScript.run(Path.of(argument));
      long wall = System.nanoTime() - begin;
      cpu = system.getProcessCpuTime() - cpu;
      System.out.println(cpu / 1_000_000 + "\t" + wall / 1_000_000 + "\t" + largest(Files.readAllLines(Path.of("/proc/self/status"))));
    }
    // Threads of the cluster may outlive their jobs.
    System.exit(0);
  }

  private static long largest(List<String> status) {
    for (String line : status) {
      if (line.startsWith("VmHWM:")) return Long.parseLong(line.replaceAll("[^0-9]", ""));
    }
    throw new IllegalStateException("/proc/self/status has no VmHWM");
  }
}

/** The lines of a unified diff with their kinds. */

export interface DiffLine {
  kind: "add" | "remove" | "place" | "same";
  text: string;
}

export function diffLines(diff: string): DiffLine[] {
  if (!diff) return [];
  return diff
    .split("\n")
    .filter((line) => !line.startsWith("--- ") && !line.startsWith("+++ "))
    .map((text) => ({ kind: kindOf(text), text }));
}

function kindOf(line: string): DiffLine["kind"] {
  if (line.startsWith("@@")) return "place";
  if (line.startsWith("+")) return "add";
  return line.startsWith("-") ? "remove" : "same";
}

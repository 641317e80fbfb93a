/** The path of a small curve; gaps where values are missing. */
export function sparkPath(values: (number | null)[], width: number, height: number): string {
  const known = values.filter((one) => one !== null);
  if (!known.length) return "";
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const margin = 2;
  const toX = (i: number) => margin + (values.length < 2 ? 0.5 : i / (values.length - 1)) * (width - 2 * margin);
  const toY = (value: number) =>
    high > low ? margin + (1 - (value - low) / (high - low)) * (height - 2 * margin) : height / 2;
  let isDown = false;
  const parts: string[] = [];
  values.forEach((value, i) => {
    if (value === null) {
      isDown = false;
      return;
    }
    const at = `${toX(i).toFixed(1)} ${toY(value).toFixed(1)}`;
    const isAlone = !isDown && (values[i + 1] ?? null) === null;
    parts.push(isDown ? `L${at}` : `M${at}${isAlone ? "h0.1" : ""}`);
    isDown = true;
  });
  return parts.join("");
}
